"""Fakes of the api's neighbours."""

from __future__ import annotations

from collections.abc import Iterable

from peloton.api.private import hostmgr_pb2
from peloton.errors import Unavailable
from peloton.model.ids import JobId, PodId
from peloton.model.resources import Resources


class RecordedWakes:
    """An ``api.wake.Wakers`` that records the started and the signalled workflows."""

    def __init__(self) -> None:
        self.started: list[JobId] = []
        self.changed: list[JobId] = []
        self.migrations: list[str] = []
        self.rebalances: list[str] = []
        self.is_down = False

    async def start_job(self, job_id: JobId) -> None:
        if self.is_down:
            raise ConnectionError("no Temporal at 127.0.0.1:7233")
        self.started.append(job_id)

    def jobs_changed(self, job_ids: Iterable[JobId], cause: str = "") -> None:
        self.changed.extend(job_ids)

    def migrations_changed(self, migration_ids: Iterable[str]) -> None:
        self.migrations.extend(migration_ids)

    def rebalances_changed(self, clusters: Iterable[str]) -> None:
        self.rebalances.extend(clusters)


class OneSandbox:
    """A Hosts with a cluster of a given size, on which one run left files."""

    def __init__(self) -> None:
        self.total: Resources | None = None
        self.grown: Resources | None = None  # seen when the capacity is read again
        self.cluster_kinds = frozenset({"mesos"})
        self.asked: list[tuple[PodId, str, str]] = []
        self.exchanges: list[hostmgr_pb2.ExchangeWithCommandRequest] = []
        self.is_down = False

    async def capacity(self) -> Resources | None:
        return self.total

    async def kinds(self) -> frozenset[str]:
        return self.cluster_kinds

    async def refresh(self, age_max_s: float) -> None:
        if self.grown is not None:
            self.total = self.grown

    async def browse_sandbox(self, pod_id: PodId, host: str, agent_id: str) -> hostmgr_pb2.BrowseSandboxResponse:
        if self.is_down:
            raise Unavailable("connection refused")
        self.asked.append((pod_id, host, agent_id))
        return hostmgr_pb2.BrowseSandboxResponse(
            hostname="10.0.0.1",
            port="5051",
            paths=["/sandbox/stdout", "/sandbox/stderr"],
            mesos_master_hostname="10.0.0.9",
            mesos_master_port="5050",
        )

    async def read_file(
        self, pod_id: PodId, host: str, agent_id: str, path: str, offset: int, follow: bool
    ) -> hostmgr_pb2.ReadFileResponse:
        self.asked.append((pod_id, host, agent_id))
        return hostmgr_pb2.ReadFileResponse(data=f"{path} from {offset}".encode(), is_end=not follow)

    async def exchange(
        self, request: hostmgr_pb2.ExchangeWithCommandRequest
    ) -> hostmgr_pb2.ExchangeWithCommandResponse:
        """Echoes the input like a command that ends with its input."""
        self.asked.append((PodId.parse(request.pod_id), request.hostname, request.agent_id))
        self.exchanges.append(request)
        answer = hostmgr_pb2.ExchangeWithCommandResponse(stdout=request.data, wants_input=True)
        if request.ends_input:
            answer.exit_code = 0
        return answer
