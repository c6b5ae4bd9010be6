"""Files of pods, which agents serve from their own disks."""

from __future__ import annotations

import re

from peloton.errors import NotFound
from peloton.model.ids import Hostname
from services.hostmgr.driver import PodOnHost, Sandbox
from services.hostmgr.mesos.agent_watch import AgentWatch
from services.hostmgr.mesos.executors import PREFIX
from services.hostmgr.mesos.operator import Operator, container_of, stderr_path

# The executor of Mesos logs to the same file as the command.
_EXECUTOR_LINE = re.compile(rb"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ \S+:\d+\] ")


class Sandboxes:
    def __init__(self, agents: AgentWatch, operator: Operator) -> None:
        self._agents = agents
        self._operator = operator

    def of(self, pod: PodOnHost, framework_id: str, master: str) -> Sandbox:
        """Return the sandbox of a pod. Raises NotFound, OSError."""
        agent = self._agents.of_host(Hostname(pod.hostname))
        if agent is None or not agent.address:
            raise NotFound(f"host {pod.hostname} is not registered with Mesos")
        state = self._operator.agent_state(agent.address)
        folder = f"{state['flags']['work_dir']}/slaves/{pod.host_id}/frameworks/{framework_id}/executors"
        executor_id = str(pod.pod_id)
        try:
            paths = self._operator.browse(agent.address, f"{folder}/{executor_id}/runs/latest")
        except OSError:
            executor_id = f"{PREFIX}{executor_id}"
            paths = self._operator.browse(agent.address, f"{folder}/{executor_id}/runs/latest")
        return Sandbox(agent.address, tuple(paths), master, container_of(state, framework_id, executor_id))

    def output_tail(self, pod: PodOnHost, framework_id: str, limit_bytes: int) -> bytes:
        """Return the end of the pod's stderr, without lines of the executor. Raises OSError, ValueError."""
        agent = self._agents.of_id(pod.host_id)
        if agent is None or not agent.address:
            raise OSError(f"agent {pod.host_id} is not registered")
        path = stderr_path(framework_id, str(pod.pod_id))
        return without_executor(self._operator.end_of_file(agent.address, path, limit_bytes))


def without_executor(text: bytes) -> bytes:
    """Return the output without lines of the executor."""
    return b"".join(line for line in text.splitlines(keepends=True) if not _EXECUTOR_LINE.match(line))
