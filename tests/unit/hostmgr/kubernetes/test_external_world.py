"""The world of the tests of external pods: what it waits for before a test begins."""

from __future__ import annotations

from typing import Any

import orjson

from tests.kubernetes.client import JSON, Client, Login, Reply
from tests.kubernetes.external_world import label_namespace


class LateApiserver(Client):
    """An apiserver whose policies see the label of a namespace some requests late."""

    def __init__(self, requests: int) -> None:
        super().__init__(Login("http://localhost"))
        self.unseen = requests

    def ask(self, method: str, path: str, body: Any = None, content_type: str = JSON, *, accept: str = JSON) -> Reply:
        if method == "PATCH":
            return Reply(200, {}, b"{}")
        assert path.endswith("?dryRun=All"), "a Job of the wait would stay in the cluster"
        self.unseen -= 1
        return Reply(201, {}, orjson.dumps({"spec": {"suspend": self.unseen < 0}}))


def test_policies_hold_jobs_when_a_namespace_is_labelled() -> None:
    """A Job that a test creates next is held: one that the policies miss runs all the same, and never comes back when
    it is paused and resumed.
    """
    client = LateApiserver(requests=3)
    label_namespace(client, "team")
    assert client.unseen < 0
