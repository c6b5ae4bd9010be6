"""A minicluster that runs alongside the tests, another framework on it, and the faults that tests cause in both."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from services.lab.mesos.master.host_resources import total_of
from services.lab.mesos.resources import Resources
from services.lab.mesos.server import Minicluster
from services.lab.mesos.settings import MiniclusterSettings
from services.lab.shared.hosts import HostSpec
from tests.unit.lab.mesos.scheduler import Scheduler, scalar, task_info

AGENTS_AWAY_S = 600.0
TIMEOUT_S = 180.0
LONG = "sleep 300"


class Emulated:
    """A minicluster on its own thread."""

    def __init__(self, folder: Path, *, simulate: bool = True, hosts: Iterable[HostSpec] = (), **more: Any) -> None:
        self._settings = {
            "data_dir": folder,
            "hosts": tuple(hosts) or tuple(HostSpec(f"h{i}", revocable_cpus=4) for i in range(3)),
            "simulate": simulate,
            "allocation_interval_s": 0.05,
            "executor_start_s": 0.0,
            "agent_recovery_s": 0.0,
            "agent_timeout_s": 0.2,
            "update_retry_s": 0.5,
            **more,
        }
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.cluster = self._begin()

    @property
    def target(self) -> tuple[str, int]:
        return "127.0.0.1", self.cluster.port

    def _begin(self) -> Minicluster:
        cluster = Minicluster(MiniclusterSettings(**self._settings))
        self._do(cluster.start())
        return cluster

    def restart(self) -> None:
        """Replace the master by a new one with another id, no memory, another port and new agents."""
        self._do(self.cluster.stop())
        self.cluster = self._begin()

    def agent(self, name: str, action: str) -> None:
        """Stop, freeze or start an agent. ``stop`` is kill -9 with all its tasks; ``freeze`` cuts its network while
        its tasks run; ``start`` brings it back."""

        async def act() -> None:
            agents = self.cluster.master.agents
            agent = self.cluster.master.registry.by_host[name]
            if action == "start":
                agents.register(agent)
            elif action == "stop":
                agents.crash(agent)
            else:
                agents.disconnect(agent)

        self._do(act())

    def swap_disk(self, name: str, had: Resources | None = None) -> Resources:
        """Replace the disk of a stopped agent by an empty one, or by the one that it ``had``. Returns the former
        disk."""

        async def act() -> Resources:
            agent = self.cluster.master.registry.by_host[name]
            before = agent.total
            agent.total = agent.free = had or total_of(agent.spec)
            return before

        found: Resources = self._do(act())
        return found

    def set_revocable(self, name: str, milli: int) -> None:
        """Set the slack of the agent."""

        async def act() -> None:
            master = self.cluster.master
            master.offers.set_revocable(master.registry.by_host[name], milli)

        self._do(act())

    def operate(self, name: str, type_: str, what: dict[str, Any]) -> None:
        """Reserve resources of the agent, or create volumes there, as an operator does."""

        async def act() -> None:
            master = self.cluster.master
            assert master.operations.change(master.registry.by_host[name], type_, what) == (202, "")

        self._do(act())

    def remove_frameworks(self) -> None:
        async def act() -> None:
            for framework in list(self.cluster.master.registry.frameworks.values()):
                self.cluster.master.frameworks.remove(framework)

        self._do(act())

    def framework(self, **info: Any) -> Other:
        """Start another framework on the cluster."""
        return Other(self.cluster.port, self._loop, info)

    def lose_registry(self) -> None:
        """Make a master lead whose registry is empty. Running agents take long to register with it."""

        async def act() -> None:
            self.cluster.master.failover.run(AGENTS_AWAY_S, empty_registry=True)

        self._do(act())

    def fail_over(self) -> None:
        """Make another master lead that has the registry. Agents register with it at once."""

        async def act() -> None:
            self.cluster.master.failover.run(0.0)

        self._do(act())

    @property
    def simulates(self) -> bool:
        return bool(self._settings["simulate"])

    def close(self) -> None:
        self._do(self.cluster.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)


class Other:
    """Another framework, which runs on the event loop of the cluster."""

    def __init__(self, port: int, loop: asyncio.AbstractEventLoop, info: dict[str, Any]) -> None:
        self._loop = loop
        self._scheduler = Scheduler(port)
        self._do(self._scheduler.subscribe(**info))

    def offered(self) -> dict[str, dict[str, float]]:
        """Return the latest offer of each host, as scalars by name."""
        events = [event for event in self._scheduler.events if event["type"] == "OFFERS"]
        offers = [offer for event in events for offer in event["offers"]["offers"]]
        return {
            offer["hostname"]: {r["name"]: r["scalar"]["value"] for r in offer["resources"] if "scalar" in r}
            for offer in offers
        }

    def launch(self, host: str, task_id: str, cpus: float) -> None:
        """Launch on the host's next offer. This framework keeps the rest of the offer."""

        async def act() -> None:
            offer = await self._scheduler.offer(host)
            resources = [scalar("cpus", cpus), scalar("mem", 32)]
            info = {**task_info(task_id, offer["agent_id"]["value"], LONG), "resources": resources}
            await self._scheduler.accept(offer, info)
            await self._scheduler.status(task_id, "TASK_RUNNING")

        self._do(act())

    def decline_all(self, refuse_s: float) -> None:
        async def act() -> None:
            events = [event for event in self._scheduler.events if event["type"] == "OFFERS"]
            ids = [offer["id"] for event in events for offer in event["offers"]["offers"]]
            await self._scheduler.call("DECLINE", {"offer_ids": ids, "filters": {"refuse_seconds": refuse_s}})
            self._scheduler.events.clear()

        self._do(act())

    def close(self) -> None:
        self._do(self._scheduler.call("TEARDOWN"))
        self._do(self._scheduler.close())

    def _do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)
