"""Sandboxes of pods on Mesos's agents."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from peloton.model.ids import JobId, PodId
from services.hostmgr.driver import PodOnHost
from services.hostmgr.mesos.sandboxes import Sandboxes

POD = PodId(JobId("00000000-0000-4000-8000-000000000001"), 3, 2)


class Agent:
    """An agent that ran one executor, and its watch."""

    def __init__(self, executor_id: str) -> None:
        self.executor_id = executor_id

    def of_host(self, hostname: str) -> Any:
        return SimpleNamespace(address="10.0.0.1:5051")

    def agent_state(self, address: str) -> Any:
        executors = [{"id": self.executor_id, "container": "c-1"}]
        return {"flags": {"work_dir": "/var"}, "frameworks": [{"id": "f", "executors": executors}]}

    def browse(self, address: str, path: str) -> list[str]:
        if path != f"/var/slaves/a/frameworks/f/executors/{self.executor_id}/runs/latest":
            raise OSError("HTTP 404")
        return [f"{path}/stdout"]


@pytest.mark.parametrize("executor_id", [str(POD), f"thermos-{POD}"])
def test_the_sandbox_is_that_of_the_pod_s_executor(executor_id: str) -> None:
    """An executor of Aurora has a prefix."""
    agent = cast("Any", Agent(executor_id))
    found = Sandboxes(agent, agent).of(PodOnHost(POD, "h1", "a"), "f", "m:5050")

    assert ("c-1", (f"/var/slaves/a/frameworks/f/executors/{executor_id}/runs/latest/stdout",)) == (
        found.container_id,
        found.paths,
    )


def test_a_pod_without_a_sandbox_is_an_error() -> None:
    """The agent's refusal is the error when it has neither folder."""
    agent = cast("Any", Agent("other"))

    with pytest.raises(OSError, match="HTTP 404"):
        Sandboxes(agent, agent).of(PodOnHost(POD, "h1", "a"), "f", "m:5050")
