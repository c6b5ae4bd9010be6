"""Discovery documents of an apiserver: groups, resources, version."""

from __future__ import annotations

from functools import cache

from services.lab.kubernetes.resources import SERVED, Json, Resource

MAJOR, MINOR, PATCH = "1", "36", "3"
GIT_VERSION = f"v{MAJOR}.{MINOR}.{PATCH}"
OLD_SCHEMAS, OLD_SCHEMAS_TYPE = "/openapi/v2", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""Empty document that kubectl reads for an unknown kind, before it reports the error."""
_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_SUBRESOURCES: dict[str, Json] = {
    "status": {"verbs": ["get", "patch", "update"]},
    "binding": {"kind": "Binding", "verbs": ["create"]},
    "eviction": {"group": "policy", "version": "v1", "kind": "Eviction", "verbs": ["create"]},
    "log": {"verbs": ["get"]},
    "exec": {"kind": "PodExecOptions", "verbs": ["create", "get"]},
    "scale": {"group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"]},
}


def page(path: str) -> Json | None:
    """Return the object at this path; None for any other path."""
    return _pages().get(path.rstrip("/"))


@cache
def _pages() -> dict[str, Json]:
    groups = sorted({resource.group for resource in SERVED.values() if resource.group})
    pages: dict[str, Json] = {
        "/version": _version(),
        "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(group) for group in groups]},
        "/api/v1": _resources("", "v1"),
    }
    pages |= _schemas(groups)
    for group in groups:
        pages[f"/apis/{group}"] = {"kind": "APIGroup", "apiVersion": "v1", **_group(group)}
        pages[f"/apis/{group}/v1"] = _resources(group, f"{group}/v1")
    return pages


def _schemas(groups: list[str]) -> dict[str, Json]:
    """Return OpenAPI documents without schemas, by which kubectl leaves validation to the server."""
    versions = {"": "api/v1"} | {group: f"apis/{group}/v1" for group in groups}
    pages: dict[str, Json] = {
        "/openapi/v3": {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in versions.values()}}
    }
    for group, path in versions.items():
        paths = {
            f"/{path}/{resource.plural}/{{name}}": {
                "patch": {
                    "parameters": [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}],
                    "x-kubernetes-group-version-kind": {"group": group, "version": "v1", "kind": resource.kind},
                    "responses": {},
                }
            }
            for resource in SERVED.values()
            if resource.group == group
        }
        info = {"title": "emulated Kubernetes", "version": GIT_VERSION}
        pages[f"/openapi/v3/{path}"] = {"openapi": "3.0.0", "info": info, "paths": paths}
    return pages


def _version() -> Json:
    return {"major": MAJOR, "minor": MINOR, "gitVersion": GIT_VERSION, "platform": "emulated"}


def _group(group: str) -> Json:
    version = {"groupVersion": f"{group}/v1", "version": "v1"}
    return {"name": group, "versions": [version], "preferredVersion": version}


def _resources(group: str, group_version: str) -> Json:
    served = sorted((one for one in SERVED.values() if one.group == group), key=lambda one: one.plural)
    rows = [row for resource in served for row in _rows(resource)]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": rows}


def _rows(resource: Resource) -> list[Json]:
    own: Json = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(_VERBS),
    }
    if resource.short_names:
        own["shortNames"] = list(resource.short_names)
    rows = [own]
    for name in sorted(resource.subresources):
        described = {"kind": resource.kind, "namespaced": resource.namespaced, **_SUBRESOURCES[name]}
        rows.append({"name": f"{resource.plural}/{name}", "singularName": "", **described})
    return rows
