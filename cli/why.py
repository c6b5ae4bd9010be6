"""``peloton why``, for ``kubectl peloton why``: the reasons of waiting of objects of Kubernetes, by their names."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from cli.command import Command
from cli.errors import Failed, is_rpc_error
from cli.kubectl import Json, Kubectl, Unreadable
from cli.output import print_outcome
from cli.pod_reasons import controller_of, explain_pod, explain_pods, is_managed, title_of
from cli.settings import Settings, pass_settings
from cli.wire import v0
from peloton.api.limits import code_of
from peloton.model.ids import parse_job_id

if TYPE_CHECKING:
    from peloton.api.v0.explain import explain_pb2

KINDS = ("pod", "job", "deployment", "statefulset")
"""Kinds in which a bare name is looked for, in this order."""
OWNERS_MAX = 5
"""Limit of the controllers above a pod: a Deployment has two levels."""
OBJECT = re.compile(r"[a-z0-9][-a-z0-9.]*/[a-z0-9][-a-z0-9.]*")
"""A namespace and a name."""
_OWN_JOB = "peloton.io/job"


@click.command("why", cls=Command)
@click.argument("what", metavar="NAME|KIND/NAME|NAMESPACE/NAME|ID")
@click.option("--namespace", "-n", default="", metavar="NAME", help="Namespace of the object instead of kubectl's.")
@click.option("--context", default="", metavar="NAME", help="Context of kubectl instead of its current one.")
@click.option("--kubeconfig", default="", metavar="FILE", help="Kubeconfig of kubectl instead of its own.")
@pass_settings
def why(settings: Settings, what: str, namespace: str, context: str, kubeconfig: str) -> None:
    """Explain why an object of Kubernetes waits, as `peloton job why` does for its job in Peloton, and why Peloton
    refuses a pod or does not manage it.

    A name alone is that of a pod, or else of a Job, a Deployment or a StatefulSet; any other kind stands before it.
    kubectl finds the object; the controller of a pod is its job. An id is that of a job in Peloton.

    \b
    Examples:
      kubectl peloton why train-0
      kubectl peloton why maps/train-0
      kubectl peloton why deployment/web -n maps
      peloton why 5a6f0f1e-3a52-4b14-b0bb-0d4d6f4c8a3f
    """
    response = explain(settings, what, Kubectl(namespace, context, kubeconfig))
    print_outcome(settings, response, response.text)


def explain(settings: Settings, what: str, kubectl: Kubectl) -> explain_pb2.JobWhyResponse:
    """Explain a job, by its id, or an object of Kubernetes. Raises Failed, RpcError."""
    if _is_id(what):
        return ask(settings, what)
    item = find_object(what, kubectl)
    near = kubectl.within(item["metadata"].get("namespace", "default"))
    is_pod = item.get("kind", "Pod") == "Pod"
    try:
        response = ask(settings, find_job(item, near))
    except Exception as error:
        if not is_rpc_error(error) or code_of(error) != "NOT_FOUND":
            raise
        lines = [_explain(item, near)] if is_pod else _explain_owner(item, near)
        text = "\n".join([f"{title_of(item)} is no job of Peloton now", *(f"  {line}" for line in lines)])
        return v0.explain.JobWhyResponse(name=title_of(item), text=text)
    if is_pod and _OWN_JOB not in (item["metadata"].get("labels") or {}):
        response.text += f"\n  {title_of(item)}: {_explain(item, near)}"
    return response


def ask(settings: Settings, job_id: str) -> explain_pb2.JobWhyResponse:
    return settings.client.explain.JobWhy(v0.explain.JobWhyRequest(jobId=v0.peloton.JobID(value=job_id)))


def _is_id(what: str) -> bool:
    try:
        parse_job_id(what)
    except ValueError:
        return False
    return True


def find_object(what: str, kubectl: Kubectl) -> Json:
    """Return the object of this name, with or without its kind or its namespace. Raises Failed."""
    tried = [what] if "/" in what else [f"{kind}/{what}" for kind in KINDS]
    places = [(kubectl, tried)]
    if OBJECT.fullmatch(what) and not kubectl.namespace:
        namespace, _, name = what.partition("/")
        places.append((kubectl.within(namespace), [f"{kind}/{name}" for kind in KINDS]))
    for place, names in places:
        for name in names:
            if (item := place.get(name)) is not None:
                return item
    raise Failed(f"kubectl finds no {' and no '.join(tried)}: name the kind, as in deployment/{what.split('/')[-1]}")


def find_job(item: Json, kubectl: Kubectl) -> str:
    """Return the id of the job of an object: of a pod that Peloton made its own, else the uid of the controller at the
    top. Raises Failed."""
    if own := (item["metadata"].get("labels") or {}).get(_OWN_JOB):
        return str(own)
    for _ in range(OWNERS_MAX):
        owner = controller_of(item)
        if owner is None:
            break
        if owner["kind"] != "ReplicaSet":
            return str(owner["uid"])
        above = kubectl.get(f"replicaset/{owner['name']}")
        if above is None:
            return str(owner["uid"])
        item = above
    return str(item["metadata"]["uid"])


def _explain(pod: Json, kubectl: Kubectl) -> str:
    namespace = None
    if not is_managed(pod):
        with suppress(Unreadable):  # without the right to it the pod has to do
            namespace = kubectl.get(f"namespace/{kubectl.namespace}")
    return explain_pod(pod, namespace)


def _explain_owner(item: Json, kubectl: Kubectl) -> list[str]:
    """Return the reasons of the pods of a controller that selects them by labels."""
    pods = kubectl.list_pods(((item.get("spec") or {}).get("selector") or {}).get("matchLabels") or {})
    if len(pods) == 1:
        return [_explain(pods[0], kubectl)]
    if pods:
        return explain_pods(pods)
    if (item.get("spec") or {}).get("suspend"):
        return ["it is suspended, and has no pods"]
    return ["it has no pods: kubectl describe shows why its controller makes none"]
