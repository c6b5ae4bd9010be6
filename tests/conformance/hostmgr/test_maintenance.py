"""Maintenance on a Mesos cluster: hosts leave the cluster and return, and a host that has left takes no pod."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from typing import Any

import pytest

from peloton.api.v0.job import job_pb2
from peloton.errors import Aborted, Unavailable
from peloton.model.host import HostState, LaunchResult
from peloton.model.ids import Hostname, JobId
from peloton.model.job import JobType
from peloton.model.maintenance import Blocker, HostMaintenance, MaintenanceAct, MaintenanceRequest, make_in_service
from peloton.model.pod import PodState
from services.hostmgr import maintenance
from services.hostmgr.drain_watch import DrainWatch
from services.hostmgr.maintenance import MaintenanceController
from services.hostmgr.mesos.operator import Operator
from services.storage.storage import Storage
from tests.conformance.hostmgr.conftest import Make
from tests.conformance.hostmgr.emulated import LONG
from tests.conformance.hostmgr.world import World, wait
from tests.conformance.storage import builders

DRAINING, DRAINED, DOWN = HostState.DRAINING, HostState.DRAINED, HostState.DOWN


class HostWakes:
    def __init__(self) -> None:
        self.hosts: list[Hostname] = []

    def hosts_changed(self, hostnames: Iterable[Hostname]) -> None:
        self.hosts += hostnames


KILLED_BY_DRAIN = PodState.KILLING, PodState.KILLED
"""States of a pod that a drain has evicted: no other call kills it."""


class Controller:
    """The maintenance of a world's leader, with its workflow executed by the test."""

    def __init__(self, world: World, wake_period_s: float = maintenance.WAKE_PERIOD_S) -> None:
        self.world, self.woken = world, HostWakes()
        wait(lambda: world.core.cache.host("h2"), "agents")
        watch = DrainWatch(world.wakes, self.woken)
        world.core._lifecycles = watch  # as the composition root does before the core starts
        self.maintenance = MaintenanceController(
            world.core,
            world.storage.maintenance,
            world.storage.host_pods,
            world.storage.disruptions,
            world.storage.host_pools,
            world.wakes,
            self.woken,
            watch,
            cluster="local",
            share=0.4,
            wake_period_s=wake_period_s,
        )
        self.maintenance.start()

    def start(self, *names: str) -> None:
        self.maintenance.request([MaintenanceRequest(Hostname(name), "") for name in names])

    def state(self, name: str) -> HostState:
        host = self.world.storage.maintenance.get("local", name)
        return host.state if host else HostState.UP

    def step(self, step: Callable[[str], HostMaintenance], name: str) -> HostState:
        """Take a step, which answers with the row that storage has after it."""
        answer = step(name)
        assert answer == (self.world.storage.maintenance.get("local", name) or make_in_service("local", name))
        return answer.state

    def drain(self, name: str) -> HostState:
        return self.step(self.maintenance.drain, name)

    def take_down(self, name: str) -> None:
        wait(lambda: self.drain(name) is DRAINED, f"{name} drained")
        assert self.step(self.maintenance.take_down, name) is DOWN

    def bring_up(self, name: str, act: MaintenanceAct = MaintenanceAct.COMPLETE) -> None:
        self.maintenance.steer([name], act)
        assert self.step(self.maintenance.bring_up, name) is HostState.UP

    def mesos(self, type_: str, **body: Any) -> Any:
        host, port = self.world.link.target
        call = {"type": type_, **({type_.lower(): body} if body else {})}
        return Operator().call(f"{host}:{port}", call).get(type_.lower(), {})

    def schedule(self) -> list[list[str]]:
        windows = self.mesos("GET_MAINTENANCE_SCHEDULE").get("schedule", {}).get("windows", [])
        return [[machine["hostname"] for machine in window["machine_ids"]] for window in windows]

    def answers(self) -> dict[str, list[str]]:
        """Return Peloton's answers about machines that are scheduled to leave."""
        machines = self.mesos("GET_MAINTENANCE_STATUS").get("status", {}).get("draining_machines", [])
        return {m["id"]["hostname"]: [s["status"] for s in m.get("statuses", [])] for m in machines}

    def agents(self) -> list[str]:
        found = self.mesos("GET_AGENTS")["agents"]
        return sorted(a["agent_info"]["hostname"] for a in found if a.get("active", True))

    def close(self) -> None:
        self.maintenance.stop()


@contextmanager
def keeping(world: World) -> Any:
    controller = Controller(world)
    yield controller
    controller.close()


def test_a_host_goes_and_comes_back(world: World) -> None:
    """The host is drained of its pods and leaves the cluster. Once completed it takes pods again. Every step may be
    repeated."""
    with keeping(world) as controller:
        job = world.running(7)
        host = world.pod(job).host
        here = [p.instance_id for p in world.pods(job) if p.host == host]
        controller.start(host)
        assert controller.drain(host) is DRAINING
        assert {p.instance_id for p in world.pods(job) if p.state in KILLED_BY_DRAIN} == set(here)
        assert world.wakes.jobs[-1] == job
        wait(lambda: controller.schedule() == [[host]], "an announcement")
        controller.take_down(host)
        controller.maintenance.take_down(host)
        controller.maintenance.drain(host)

        wait(lambda: host not in controller.agents() and not world.core.cache.host(host), "an agent less")
        assert [h.state for h in world.core.cache.hosts() if h.hostname == host] == [DOWN]
        world.settle(job)
        world.admit(job)
        assert host not in [p.hostname for p in world.place(job).placements]
        controller.bring_up(host)
        controller.maintenance.bring_up(host)

        wait(lambda: host in controller.agents(), "the agent back")
        assert controller.schedule() == []
        wait(lambda: world.core.cache.host(host), "known to us")


def test_cancelled_it_stays(world: World) -> None:
    """A cancelled host leaves the schedule and takes pods again."""
    with keeping(world) as controller:
        controller.start("h1")
        wait(lambda: controller.schedule() == [["h1"]], "an announcement")
        wait(lambda: controller.drain("h1") is DRAINED, "drained")

        controller.bring_up("h1", MaintenanceAct.CANCEL)

        assert controller.schedule() == []
        assert controller.agents() == ["h0", "h1", "h2"]
        wait(lambda: world.start(12), "pods on all hosts")


def test_machines_of_others_stay_in_the_schedule(world: World) -> None:
    """Machines that an operator has scheduled stay, and Peloton's are added and removed. Peloton declares to Mesos only
    that its own leave."""
    with keeping(world) as controller:
        theirs = {"hostname": "h2", "ip": "127.0.0.1"}
        window = {"machine_ids": [theirs], "unavailability": {"start": {"nanoseconds": time.time_ns()}}}
        controller.mesos("UPDATE_MAINTENANCE_SCHEDULE", schedule={"windows": [window]})

        controller.start("h1")

        wait(lambda: controller.schedule() == [["h2"], ["h1"]], "an announcement")
        wait(lambda: controller.answers() == {"h2": ["DECLINE"], "h1": ["ACCEPT"]}, "answers to inverse offers")
        controller.take_down("h1")
        controller.bring_up("h1")
        assert controller.schedule() == [["h2"]]


@pytest.mark.parametrize("lost", ["START_MAINTENANCE", "STOP_MAINTENANCE", "UPDATE_MAINTENANCE_SCHEDULE"])
@pytest.mark.parametrize("how", ["lose_call", "lose_answer"])
def test_a_call_or_its_answer_is_lost(lost: str, how: str, world: World) -> None:
    """A step whose call or answer is lost fails, and succeeds when it is repeated."""
    with keeping(world) as controller:
        setattr(world.link, how, lost)
        failures = 0

        def step(act: Callable[[str], None]) -> None:
            nonlocal failures
            for _ in range(2):
                try:
                    return act("h1")
                except Unavailable:
                    failures += 1

        controller.start("h1")
        wait(lambda: controller.drain("h1") is DRAINED, "drained")
        step(controller.maintenance.take_down)
        assert controller.state("h1") is DOWN
        controller.maintenance.steer(["h1"], MaintenanceAct.COMPLETE)
        step(controller.maintenance.bring_up)

        assert controller.state("h1") is HostState.UP
        assert not getattr(world.link, how)
        assert failures == 1 or lost == "UPDATE_MAINTENANCE_SCHEDULE"  # which the thread of the host manager sends, too
        wait(lambda: controller.agents() == ["h0", "h1", "h2"], "the agent back")


def test_no_pod_is_launched_after_it_is_drained(world: World) -> None:
    """A launch that had claimed the host before is waited for, and its pods have to leave. Later launches are
    refused."""
    with keeping(world) as controller:
        job = world.job(3)
        batch, late = world.place(job), world.job(3)
        host = batch.placements[0].hostname
        committed, go_on = threading.Event(), threading.Event()
        before = world.storage.host_pods.mark_launched

        def slow(*args: Any, **more: Any) -> set[int]:
            committed.set()
            go_on.wait()
            return before(*args, **more)

        world.storage.host_pods.mark_launched = slow  # type: ignore[method-assign]

        def launch() -> None:
            with world.core.cache.launching([p.hostname for p in batch.placements]):
                world.launch(batch)

        launching = threading.Thread(target=launch)
        launching.start()
        committed.wait()
        controller.start(host)
        assert [controller.drain(host) for _ in range(3)] == [DRAINING] * 3
        assert controller.maintenance.hosts()[0].progress.waiting_for == "launches under way to end"
        go_on.set()
        launching.join()
        world.storage.host_pods.mark_launched = before  # type: ignore[method-assign]

        def is_drained() -> bool:
            world.core.kill_running(job)
            return controller.drain(host) is DRAINED

        wait(is_drained, "drained")
        assert [p.instance_id for p in world.pods(job) if p.host == host and p.state in ("RUNNING", "LAUNCHED")] == []
        assert host not in [p.hostname for p in world.place(late).placements]


def test_a_lease_from_before_is_refused(world: World) -> None:
    """Pods that were placed on the host before it left are not launched there, and wait for another placement."""
    with keeping(world) as controller:
        job = world.job(1)
        batch = world.place(job)
        controller.start(batch.placements[0].hostname)

        assert world.launch(batch) == LaunchResult(0, refused_count=1)
        assert world.pod(job).state is PodState.READY


def test_a_successor_knows_who_is_away(make: Make) -> None:
    """A new leader leases no host in maintenance from the first moment, and wakes all maintenances."""
    world = make()
    with keeping(world) as controller:
        controller.start("h0", "h1")
    world.core.stop()
    world.lead()
    with keeping(world) as controller:
        assert controller.woken.hosts == ["h0", "h1"]
        assert world.core.cache.capacity()[2] == 2
        assert {p.hostname for p in world.place(world.job(2)).placements} <= {"h1", "h2"}


def test_what_is_refused(world: World) -> None:
    """A host that Mesos does not know is refused, alone or among others, and nothing is stored."""
    with keeping(world) as controller:
        with pytest.raises(Aborted, match=r"^host is not a Peloton agent: nowhere$"):
            controller.start("nowhere")
        with pytest.raises(Aborted, match=r"^host is not a Peloton agent: nowhere$"):
            controller.start("h1", "nowhere")

        storage: Storage = world.storage
        assert storage.maintenance.all("local") == []


def test_pods_of_services_leave_as_their_sla_allows(world: World) -> None:
    """One pod leaves at a time, the next once the last serves again elsewhere. Meanwhile the host names the blocking
    job and its numbers. When forced, the rest leaves at once."""
    with keeping(world) as controller:
        job = service(world, 7, maximum_unavailable=1)
        host = next(h for h in ("h0", "h1", "h2") if len(on_host(world, job, h)) == 4)
        controller.start(host)

        here = on_host(world, job, host)
        assert controller.drain(host) is DRAINING
        progress = controller.maintenance.hosts()[0].progress
        assert (progress.pod_count, progress.leaving_count) == (4, 1)
        assert progress.waiting_for == "the end of 1 pod and the SLA of 1 job to let 3 pods go"
        assert [controller.drain(host) for _ in range(2)] == [DRAINING] * 2
        assert list_departures(world, job) == here[:1]
        reported = Blocker(job, 3, "1 of at most 1 instances are unavailable already")
        assert controller.maintenance.hosts()[0].progress.blockers == (reported,)
        assert world.storage.disruptions.recent(job, 1)[0].granted is False

        come_back(world, job)
        wait(
            lambda: controller.drain(host) is DRAINING and len(list_departures(world, job)) == 1,
            "the next one told to go",
        )
        assert host in controller.woken.hosts

        controller.maintenance.steer([host], MaintenanceAct.FORCE)
        wait(
            lambda: controller.drain(host) is DRAINING and len(list_departures(world, job)) == 3, "the rest told to go"
        )
        assert controller.maintenance.hosts()[0].progress.blockers == ()
        come_back(world, job)
        wait(lambda: controller.drain(host) is DRAINED, "drained")
        assert world.states(job) == {"RUNNING": 7}


def list_departures(world: World, job: JobId) -> list[int]:
    return [p.instance_id for p in world.pods(job) if p.desired_run_id > p.run_id]


def service(world: World, count: int, maximum_unavailable: int) -> JobId:
    config = builders.a_config(count, type_=JobType.SERVICE, maximumUnavailableInstances=maximum_unavailable)
    config.placementStrategy = job_pb2.PLACEMENT_STRATEGY_PACK_HOST  # one host is full, which the test relies on
    config.defaultConfig.command.value = LONG
    config.defaultConfig.resource.cpuLimit = 1.0
    job = builders.create(world.storage, config)
    world.storage.pods.create(job, lambda _: None)
    world.admit(job)
    world.launch(world.place(job))
    world.wait_states(job, {"RUNNING": count})
    return job


def on_host(world: World, job: JobId, host: str) -> list[int]:
    return [p.instance_id for p in world.pods(job) if p.host == host]


def come_back(world: World, job: JobId) -> None:
    """Acts as the job's workflow for pods that have to leave, and that the drain has killed: they are queued, placed
    and launched."""
    count = len(list_departures(world, job))
    wait(lambda: world.states(job).get("KILLED") == count, "the end of those that leave")
    world.admit(job)
    world.launch(world.place(job))
    wait(lambda: world.states(job) == {"RUNNING": len(world.pods(job))}, "all of them running")


def test_maintenances_with_a_step_to_take_are_woken_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Maintenances whose workflow Temporal may have lost are woken. A host that is DOWN waits for an operator."""
    monkeypatch.setattr(maintenance, "TASKS_PERIOD_S", 0.02)
    controller = Controller(world, wake_period_s=0.05)
    try:
        controller.start("h0", "h1")
        wait(lambda: controller.woken.hosts.count(Hostname("h1")) > 3, "wake-ups of a host that is drained")
        controller.take_down("h0")
        before = controller.woken.hosts.count(Hostname("h1"))
        controller.woken.hosts.clear()
        wait(lambda: controller.woken.hosts.count(Hostname("h1")) > before, "more of them")

        assert Hostname("h0") not in controller.woken.hosts[1:]
    finally:
        controller.close()
