"""Permissions of a host manager in its cluster: the rules of the Helm chart, and what ``peloton up --kubeconfig``
asks for.

A test compares the rules of the chart with this table, and one on a real apiserver the table with its audit log.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import NamedTuple

import orjson

from services.hostmgr.kubernetes.apiserver.wire import ApiServer, Request
from services.hostmgr.kubernetes.suspend.owner_kinds import KINDS

RUNTIMES_GROUP = "trainer.kubeflow.org"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Permission(NamedTuple):
    resource: str  # with the subresource, as in pods/log
    verbs: tuple[str, ...]
    purpose: str
    group: str = ""
    is_namespaced: bool = False  # in the namespace of Peloton's pods alone; else in the whole cluster
    is_needed: bool = True  # whether nothing works without it
    role: str = "peloton-hostmgr"  # of the chart
    name: str = ""  # of an object that stands for those that it is granted for; empty: all objects


PERMISSIONS = (
    Permission("nodes", ("get", "list", "watch", "patch"), "hosts, and cordons of maintenance"),
    Permission("pods", ("list", "watch"), "states of pods, and what external ones hold"),
    Permission("namespaces", ("get",), "the cluster's identity", name="kube-system"),
    Permission(
        "priorityclasses", ("get",), "the class of the pods", "scheduling.k8s.io", is_needed=False, name="peloton"
    ),
    Permission("pods", ("list",), "slack for revocable pods", "metrics.k8s.io", is_needed=False),
    Permission("pods", ("create", "get", "delete"), "launches, ends", is_namespaced=True),
    Permission("pods/log", ("get",), "logs of jobs", is_namespaced=True, is_needed=False),
    Permission("pods/exec", ("create", "get"), "commands in pods", is_namespaced=True, is_needed=False),
    Permission("secrets", ("create", "list", "delete"), "secrets of jobs", is_namespaced=True, is_needed=False),
    Permission("services", ("create", "list", "delete"), "DNS names of gangs", is_namespaced=True, is_needed=False),
    Permission("events", ("list",), "folders of volumes that are gone", is_namespaced=True, is_needed=False),
    Permission(
        "leases",
        ("create", "get", "list", "watch", "update"),
        "election of the host manager",
        "coordination.k8s.io",
        is_namespaced=True,
    ),
    Permission(
        "poddisruptionbudgets",
        ("create", "list", "patch", "delete"),
        "drains by other tools",
        "policy",
        is_namespaced=True,
        is_needed=False,
    ),
    *(
        Permission(resource, verbs, "external pods", group, is_needed=False, role="peloton-external-pods")
        for resource, verbs, group in (
            ("namespaces", ("get",), ""),
            ("pods/binding", ("create",), ""),
            ("pods/eviction", ("create",), ""),
            ("pods", ("patch",), ""),
            ("pods/status", ("patch",), ""),
            ("jobs", ("get", "list", "watch", "patch"), "batch"),
            ("jobs/status", ("patch",), "batch"),
            ("events", ("create",), ""),
            ("admissions", ("grant",), "peloton.io"),
            ("replicasets", ("get",), "apps"),
            *(("podgroups", ("get",), f"scheduling.{suffix}") for suffix in ("k8s.io", "x-k8s.io", "volcano.sh")),
        )
    ),
    *(
        Permission(
            f"{plural}{part}", verbs, "owners held suspended", group, is_needed=False, role="peloton-held-owners"
        )
        for group, plural in sorted({(kind.group, kind.plural) for kind in KINDS if kind.group != "batch"})
        for part, verbs in (("", ("get", "list", "watch", "patch")), ("/status", ("patch",)))
    ),
    *(
        Permission(
            plural, ("get",), "owners held suspended", RUNTIMES_GROUP, is_needed=False, role="peloton-held-owners"
        )
        for plural in ("clustertrainingruntimes", "trainingruntimes")
    ),
    *(
        Permission(resource, verbs, "pools as objects", group, is_needed=False, role="peloton-resource-pools")
        for resource, verbs, group in (
            ("resourcepools", ("list", "watch", "patch"), "peloton.io"),
            ("resourcepools/status", ("patch",), "peloton.io"),
            ("namespaces", ("list", "patch"), ""),
        )
    ),
)


class Missing(NamedTuple):
    permission: Permission
    verbs: tuple[str, ...]
    namespace: str  # empty: the whole cluster

    def __str__(self) -> str:
        resource = ".".join(filter(None, (self.permission.resource, self.permission.group)))
        place = f"in namespace {self.namespace}" if self.namespace else "in the cluster"
        return f"{', '.join(self.verbs)} {resource} {place} ({self.permission.purpose})"


def find_missing(api: ApiServer, namespace: str) -> list[Missing]:
    """Return the permissions that this user lacks, by the apiserver's own answers. ``namespace``: of the pods. Raises
    OSError."""
    asked = [(one, verb, namespace if one.is_namespaced else "") for one in PERMISSIONS for verb in one.verbs]
    answers = api.ask_all([Request("POST", REVIEWS, _review(*one)) for one in asked])
    refused: dict[tuple[Permission, str], list[str]] = {}
    for (permission, verb, place), answer in zip(asked, answers, strict=True):
        if isinstance(answer, OSError):
            raise answer
        if answer.status != HTTPStatus.CREATED:
            raise ConnectionError(f"the apiserver does not say what this user may do: {answer.message}")
        if not answer.json().get("status", {}).get("allowed"):
            refused.setdefault((permission, place), []).append(verb)
    return [Missing(permission, tuple(verbs), place) for (permission, place), verbs in refused.items()]


def _review(permission: Permission, verb: str, namespace: str) -> bytes:
    resource, _, subresource = permission.resource.partition("/")
    attributes = {"verb": verb, "group": permission.group, "resource": resource, "namespace": namespace}
    attributes |= {"subresource": subresource, "name": permission.name}
    return orjson.dumps({"spec": {"resourceAttributes": attributes}})
