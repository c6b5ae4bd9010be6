"""Moves of hosts to other host pools: the call, and the steps of the workflow, which tests take directly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v0.maintenance import maintenance_pb2 as pb
from peloton.lifecycle.maintenance import Step, next_step
from peloton.model.host import HostState
from peloton.model.ids import Hostname
from peloton.model.job import JobType
from peloton.model.pod import PodState
from tests.conformance.hostmgr.test_host_pools import CHANGE, CREATE, Manager, hosts, url
from tests.conformance.hostmgr.world import wait
from tests.conformance.storage import builders

__all__ = ["url"]
MOVE, CANCEL = pb.MoveRequest, pb.CancelRequest
STEPS = {
    Step.CORDON: "cordon", Step.DRAIN: "drain", Step.RELABEL: "relabel", Step.TAKE_DOWN: "take_down",
    Step.BRING_UP: "bring_up",
}  # fmt: skip


@pytest.fixture
def managers(url: str) -> Iterator[tuple[Manager, Manager]]:
    """Host managers of the clusters east and west with three hosts each, and host pools for services and for batch
    jobs."""
    both = Manager(url, "east", hosts("e")), Manager(url, "west", hosts("w"))
    wait(lambda: len(both[0].pools()["default"]) == 6, "all hosts")
    for name in ("stateless", "shared"):
        both[0].stub.CreateHostPool(CREATE(name=name))
    yield both
    for one in both:
        one.close()


def step(manager: Manager, host: str) -> Step:
    """Take the next step of the host and return the step."""
    row = manager.storage.maintenance.get(manager.cluster, host)
    due = next_step(row) if row is not None else Step.NONE
    if due in STEPS:
        getattr(manager.maintenance_controller, STEPS[due])(host)
    return due


def settle(manager: Manager, host: str) -> list[Step]:
    """Take all steps until the host has none, without repetitions."""
    taken: list[Step] = []

    def is_over() -> bool:
        due = step(manager, host)
        taken.extend([due] if due is not Step.NONE and due not in taken else [])
        return due is Step.NONE

    wait(is_over, f"{host} to settle")
    return taken


def place(manager: Manager, host: str) -> tuple[str, str]:
    info = manager.hosts_now()[host]
    return info.current_pool, info.desired_pool


def test_a_host_moves_once_its_pods_have_left(managers: tuple[Manager, Manager]) -> None:
    """Batch pods are evicted, nothing is launched meanwhile, and services are launched afterwards. The cluster manager
    is not notified."""
    east, _ = managers
    batch = east.job(30, 1.0)
    assert {"e0": 10, "e1": 10, "e2": 10} == east.start(batch)
    wait(lambda: {PodState.RUNNING} == {pod.state for pod in builders.pods(east.storage, batch)}, "its pods running")

    (moving,) = east.maintenance.Move(MOVE(hostnames=["e1"], host_pool="stateless")).hosts

    assert ("e1", "stateless", ("default", "stateless")) == (moving.hostname, moving.to_pool, place(east, "e1"))
    assert ["e1"] == list(dict.fromkeys(east.woken))
    step(east, "e1")
    assert {PodState.KILLING, PodState.KILLED} & {pod.state for pod in builders.pods(east.storage, batch)}
    waiting = east.job(1, 1.0, JobType.SERVICE)
    assert 1 == east.place(waiting).unplaced_count
    assert [Step.DRAIN, Step.RELABEL, Step.BRING_UP] == settle(east, "e1")

    assert ("stateless", "stateless") == place(east, "e1")
    assert {"e1": 1} == east.start(waiting)
    assert 0 == east.hosts.hosts[Hostname("e1")].goes_ns


def test_daemons_stay_on_a_host_that_moves(managers: tuple[Manager, Manager]) -> None:
    """Daemons run on hosts of all host pools, so they stay. They leave a host that goes DOWN."""
    east, _ = managers
    config = builders.a_config(0, type_=JobType.DAEMON)
    config.defaultConfig.command.value = "sleep"
    daemon = builders.create(east.storage, config)

    def runs() -> dict[str, int]:
        return {pod.host: pod.run_id for pod in builders.pods(east.storage, daemon) if pod.state is PodState.RUNNING}

    def launch() -> bool:
        east.core.daemons.step(daemon, -1)
        return set(runs()) == {"e0", "e1", "e2"}

    wait(launch, "a pod on each host")
    before = runs()

    east.maintenance.Move(MOVE(hostnames=["e1"], host_pool="stateless"))
    assert [Step.DRAIN, Step.RELABEL, Step.BRING_UP] == settle(east, "e1")
    assert before == runs()

    east.maintenance.Start(pb.StartRequest(hostnames=["e1"]))
    assert Step.DRAIN is step(east, "e1")
    (going,) = east.maintenance_controller.hosts()
    assert (1, 1) == (going.progress.pod_count, going.progress.leaving_count)


def test_a_host_of_another_cluster_moves_there(managers: tuple[Manager, Manager]) -> None:
    """The request may go to any host manager. The host manager of the host's cluster learns the new host pool."""
    east, west = managers
    east.maintenance.Move(MOVE(hostnames=["w2"], host_pool="shared"))

    wait(lambda: west.woken == ["w2"], "west to begin")
    assert [Step.DRAIN, Step.RELABEL, Step.BRING_UP] == settle(west, "w2")
    assert ("shared", "shared") == place(west, "w2")


def test_a_cancelled_move_gives_the_host_back(managers: tuple[Manager, Manager]) -> None:
    """A cancellation, and an immediate change of the host pool, end the move. The host takes pods of its old host pool
    again."""
    east, _ = managers
    for undo in (
        lambda: east.maintenance.Cancel(CANCEL(hostnames=["e0"])),
        lambda: east.stub.ChangeHostPool(
            CHANGE(hostname="e0", sourcePool="default", destinationPool="default"),
        ),
    ):
        east.maintenance.Move(MOVE(hostnames=["e0"], host_pool="shared"))
        assert ("default", "shared") == place(east, "e0")
        undo()
        wait(lambda: next_step(east.storage.maintenance.all("east")[0]) is Step.BRING_UP, "the way back")
        assert [Step.BRING_UP] == settle(east, "e0")
        assert ("default", "default") == place(east, "e0")


def test_a_host_that_is_down_is_moved_at_once(managers: tuple[Manager, Manager]) -> None:
    """A host that is DOWN has no pods, is moved at once, and stays DOWN."""
    east, _ = managers
    east.maintenance.Start(pb.StartRequest(hostnames=["e0"]))
    wait(lambda: step(east, "e0") is Step.STAY, "e0 to be down")

    assert [] == list(east.maintenance.Move(MOVE(hostnames=["e0"], host_pool="shared")).hosts)

    assert "e0" in east.pools()["shared"]
    row = east.storage.maintenance.get("east", "e0")
    assert row is not None
    assert (HostState.DOWN, HostState.DOWN) == (row.state, row.goal)


def test_a_new_host_manager_continues_moves(managers: tuple[Manager, Manager], url: str) -> None:
    """A new host manager keeps pods off the host from its first lease on, and begins pending moves."""
    east, _ = managers
    east.maintenance.Move(MOVE(hostnames=["e0"], host_pool="shared"))
    east.storage.host_pools.desire(["e1"], "shared", builders.NOW)
    east.close()

    again = Manager(url, "east", hosts("e"))
    try:
        assert "e0" not in {placed.hostname for placed in again.place(again.job(30, 1.0)).placements}
        wait(lambda: again.storage.maintenance.get("east", "e1"), "the second move")
        settle(again, "e0")
        settle(again, "e1")
        assert [("shared", "shared")] * 2 == [place(again, name) for name in ("e0", "e1")]
    finally:
        again.close()


def resize(source: tuple[str, int], destination: tuple[str, int]) -> host_svc_pb2.MoveHostsRequest:
    return host_svc_pb2.MoveHostsRequest(
        sourcePool=source[0], srcPoolDesiredHosts=source[1],
        destinationPool=destination[0], destPoolDesiredHosts=destination[1],
    )  # fmt: skip


def test_hosts_are_moved_by_their_number(managers: tuple[Manager, Manager]) -> None:
    """MoveHosts of the original takes hosts from the host pool shared, idle ones first, of any cluster. Hosts count in
    their destination, so a repeated call does nothing."""
    east, west = managers
    for name in ("e0", "e1", "w0"):
        east.stub.ChangeHostPool(CHANGE(hostname=name, sourcePool="default", destinationPool="shared"))
    assert {"e0": 10, "e1": 5} == east.start(east.job(15, 1.0, preemptible=True))

    for _ in range(2):
        east.stub.MoveHosts(resize(("shared", 1), ("stateless", 2)))

    wanted = {name: place(manager, name) for manager, name in ((east, "e0"), (east, "e1"))}
    assert {"e0": ("shared", "shared"), "e1": ("shared", "stateless")} == wanted
    wait(lambda: west.woken == ["w0"], "west to begin")


def test_hosts_with_pods_that_may_not_be_preempted_are_not_taken(managers: tuple[Manager, Manager]) -> None:
    """The refusal counts such hosts, and nothing moves."""
    east, _ = managers
    for name in ("e0", "e1"):
        east.stub.ChangeHostPool(CHANGE(hostname=name, sourcePool="default", destinationPool="shared"))
    east.stub.UpdateHostPool(host_svc_pb2.UpdateHostPoolRequest(name="shared", sets_serves=True, serves=["batch"]))
    assert {"e0": 1} == east.start(east.job(1, 1.0))

    request = resize(("shared", 0), ("stateless", 2))
    text = "1 of 2 hosts in host pool shared have only pods that may be preempted, 2 are to leave it"
    assert ("ABORTED", text) == east.refusal(east.stub.MoveHosts, request)
    assert ("INVALID_ARGUMENT", "there is no host pool x") == east.refusal(
        east.stub.MoveHosts, resize(("shared", 0), ("x", 2))
    )
    assert ("shared", "shared") == place(east, "e1")


def test_refusals(managers: tuple[Manager, Manager], url: str) -> None:
    """Each refusal has its code and text. Either all hosts of a call move or none."""
    east, _ = managers
    for request, expected in (
        (MOVE(hostnames=["e0", "e9"], host_pool="shared"), ("NOT_FOUND", "host not found: e9")),
        (MOVE(hostnames=["e0"], host_pool="x"), ("INVALID_ARGUMENT", "invalid dest pool: there is no host pool x")),
        (MOVE(host_pool="shared"), ("INVALID_ARGUMENT", "no host is named")),
    ):
        assert expected == east.refusal(east.maintenance.Move, request)
    assert ("default", "default") == place(east, "e0")
    off = Manager(url, "north", hosts("n"), is_on=False)
    try:
        request = MOVE(hostnames=["n0"], host_pool="shared")
        assert ("UNIMPLEMENTED", "host pools not enabled") == off.refusal(off.maintenance.Move, request)
    finally:
        off.close()


def test_a_bound_of_the_call_lets_more_hosts_move_at_a_time(managers: tuple[Manager, Manager]) -> None:
    """The installation's bound allows one of three hosts. Waiting hosts take the new bound, also under a later host
    manager."""
    east, _ = managers
    east.maintenance.Move(MOVE(hostnames=["e0", "e1", "e2"], host_pool="shared"))
    assert {"e0": HostState.DRAINING, "e1": HostState.UP, "e2": HostState.UP} == drains(east)

    east.maintenance.Move(MOVE(hostnames=["e1"], host_pool="shared", at_most=2))
    assert {"e0": HostState.DRAINING, "e1": HostState.DRAINING, "e2": HostState.UP} == drains(east)

    east.storage.host_pools.desire(["e2"], "shared", 1, at_most=3)
    wait(lambda: drains(east)["e2"] is HostState.DRAINING, "the bound to be seen")


def drains(manager: Manager) -> dict[str, HostState]:
    return {row.hostname: row.state for row in manager.storage.maintenance.all(manager.cluster)}
