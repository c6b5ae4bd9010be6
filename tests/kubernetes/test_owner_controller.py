"""The stand-in for controllers of owners, on a scripted apiserver."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from tests.kubernetes.client import Login
from tests.kubernetes.owner_controller import OwnerController
from tests.unit.hostmgr.kubernetes.held_world import a_job
from tests.unit.hostmgr.kubernetes.scripted import Asked, answer, run_scripted
from tests.unit.hostmgr.mesos.sockets import TIMEOUT_S
from tests.unit.owner_examples import kind_named


def test_a_kind_that_is_not_served_yet_is_waited_for() -> None:
    """The apiserver answers a path that it does not know with a text."""
    kind, made = kind_named("PyTorchJob", "v1"), threading.Event()
    owner = a_job(uid="u", name="one")
    template = owner["spec"].pop("template")
    owner["spec"] = {"runPolicy": {"suspend": False}, "pytorchReplicaSpecs": {"Master": {"template": template}}}
    turns: list[str] = []

    def serve(asked: Asked) -> Iterator[bytes]:
        if asked.method == "POST":
            made.set()
            yield answer(201, {})
        elif "pytorchjobs" not in asked.path:
            turns.append(asked.path)
            yield answer(200, {"items": []})
        else:
            yield answer(200, {"items": [owner]}) if len(turns) > 2 else answer(404, b"404 page not found\n")

    with run_scripted(serve) as server, OwnerController(Login(f"http://{server.address}"), [kind]):
        assert made.wait(TIMEOUT_S)
