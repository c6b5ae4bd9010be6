"""``peloton why``, for ``kubectl peloton why``: the reasons of waiting of objects of Kubernetes, by their names."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any, NoReturn

import click

from cli.command import Command
from cli.errors import Failed
from cli.output import print_outcome
from cli.settings import Settings, pass_settings
from cli.wire import v0
from peloton.model.ids import parse_job_id

KINDS = ("pod", "job")
"""Kinds in which a bare name is looked for, in this order."""
OWNERS_MAX = 5
"""Limit of the controllers above a pod: a Deployment has two levels."""
TIMEOUT_S = 30.0
_NOT_FOUND = "NotFound"
Json = dict[str, Any]


@click.command("why", cls=Command)
@click.argument("what", metavar="NAME|KIND/NAME|ID")
@click.option("--namespace", "-n", default="", metavar="NAME", help="Namespace of the object instead of kubectl's.")
@click.option("--context", default="", metavar="NAME", help="Context of kubectl instead of its current one.")
@click.option("--kubeconfig", default="", metavar="FILE", help="Kubeconfig of kubectl instead of its own.")
@pass_settings
def why(settings: Settings, what: str, namespace: str, context: str, kubeconfig: str) -> None:
    """Explain why a pod or a job of Kubernetes waits, as `peloton job why` does for its job in Peloton.

    A name alone is that of a pod, or else of a Job; any other kind stands before it. kubectl finds the object; the
    controller of a pod is its job. An id is that of a job in Peloton.

    \b
    Examples:
      kubectl peloton why train-0
      kubectl peloton why deployment/web -n maps
      peloton why 5a6f0f1e-3a52-4b14-b0bb-0d4d6f4c8a3f
    """
    flags = {"namespace": namespace, "context": context, "kubeconfig": kubeconfig}
    job_id = what if _is_id(what) else find_job(what, [f"--{name}={value}" for name, value in flags.items() if value])
    response = settings.client.explain.JobWhy(v0.explain.JobWhyRequest(jobId=v0.peloton.JobID(value=job_id)))
    print_outcome(settings, response, response.text)


def _is_id(what: str) -> bool:
    try:
        parse_job_id(what)
    except ValueError:
        return False
    return True


def find_job(what: str, flags: list[str]) -> str:
    """Return the id of the job of an object: the uid of the controller at the top. Raises Failed."""
    names = [what] if "/" in what else [f"{kind}/{what}" for kind in KINDS]
    item = next((one for name in names if (one := _get(name, flags)) is not None), None)
    if item is None:
        raise Failed(
            f"kubectl finds no {' and no '.join(names)}: name the kind, as in deployment/{what.split('/')[-1]}"
        )
    within = [one for one in flags if not one.startswith("--namespace=")]
    within.append(f"--namespace={item['metadata'].get('namespace', 'default')}")
    for _ in range(OWNERS_MAX):
        owner = next((one for one in item["metadata"].get("ownerReferences", []) if one.get("controller")), None)
        if owner is None:
            break
        if owner["kind"] != "ReplicaSet":
            return str(owner["uid"])
        above = _get(f"replicaset/{owner['name']}", within)
        if above is None:
            return str(owner["uid"])
        item = above
    return str(item["metadata"]["uid"])


def _get(name: str, flags: list[str]) -> Json | None:
    """Return an object as kubectl has it, None if there is none. Raises Failed."""
    if (kubectl := shutil.which("kubectl")) is None:
        raise Failed("kubectl is not on the PATH: give the id of the job")
    argv = [kubectl, "get", name, "--output=json", *flags]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        _fail(name, f"no answer in {TIMEOUT_S:g} s")
    if done.returncode != 0:
        if _NOT_FOUND in done.stderr:
            return None
        _fail(name, done.stderr.strip())
    found: Json = json.loads(done.stdout)
    return found


def _fail(name: str, why: str) -> NoReturn:
    raise Failed(f"kubectl get {name}: {why}")
