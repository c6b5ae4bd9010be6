"""kubectl, which reads objects of Kubernetes with the user's own rights."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass, replace
from typing import Any

from cli.errors import Failed

TIMEOUT_S = 30.0
_NOT_FOUND, _NO_KIND = "(NotFound)", "the server doesn't have a resource type"
Json = dict[str, Any]


class Unreadable(Failed):
    """kubectl cannot read the object; the message has its words."""


def is_there() -> bool:
    return shutil.which("kubectl") is not None


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Values that are empty are kubectl's own."""

    namespace: str = ""
    context: str = ""
    kubeconfig: str = ""

    def within(self, namespace: str) -> Kubectl:
        return replace(self, namespace=namespace)

    def get(self, name: str, *more: str) -> Json | None:
        """Return an object, ``KIND/NAME``, or a list of a kind; None if there is none, or no such kind. Raises
        Failed."""
        if (program := shutil.which("kubectl")) is None:
            raise Failed("kubectl is not on the PATH: give the id of the job")
        named = {"context": self.context, "kubeconfig": self.kubeconfig, "namespace": self.namespace}
        flags = [f"--{flag}={value}" for flag, value in named.items() if value]
        argv = [program, "get", name, "--output=json", *more, *flags]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise Unreadable(f"kubectl get {name}: no answer in {TIMEOUT_S:g} s") from None
        if done.returncode != 0:
            if _NOT_FOUND in done.stderr or _NO_KIND in done.stderr:
                return None
            raise Unreadable(f"kubectl get {name}: {done.stderr.strip()}")
        found: Json = json.loads(done.stdout)
        return found

    def list_pods(self, labels: dict[str, str]) -> list[Json]:
        """Return the pods with these labels. Raises Failed."""
        selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        found = self.get("pods", f"--selector={selector}") if selector else None
        return list((found or {}).get("items", ()))
