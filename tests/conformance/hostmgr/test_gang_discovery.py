"""Members of a gang are launched with one view of it, whatever happens to the launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from peloton.api.v0.task import task_pb2
from peloton.errors import Unavailable
from peloton.lifecycle.discovery import GangView
from peloton.model.ids import JobId, PodId
from services.hostmgr.driver import HostLaunch
from services.hostmgr.mesos.driver import MesosDriver
from tests.conformance.hostmgr.world import World, wait
from tests.conformance.storage import builders

SIZE = 4
Launches = dict[PodId, tuple[Mapping[str, str], Sequence[int]]]
"""Variables and ports of the pods that were sent to the cluster."""


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Launches:
    found: Launches = {}
    launch = MesosDriver.launch

    def record(self: MesosDriver, hosts: Sequence[HostLaunch]) -> list[tuple[PodId, str]]:
        found.update({pod.pod_id: (dict(pod.variables), pod.ports) for _, pods in hosts for pod in pods})
        return launch(self, hosts)

    monkeypatch.setattr(MesosDriver, "launch", record)
    return found


def a_gang(world: World, count: int = SIZE) -> JobId:
    """Create a gang of SIZE."""

    def has_ports(config: task_pb2.TaskConfig) -> None:
        config.ports.add(name="http")
        config.ports.add(name="gang", envName="GANG_PORT")
        config.labels.add(key="peloton.gang", value="torch")
        config.resource.cpuLimit = 0.5

    return world.job(count, sla={"minimumRunningInstances": SIZE}, changes=[has_ports])


def place(world: World, job_id: JobId, for_gang: bool = True) -> None:
    """Launch pods as soon as the cluster has listed its hosts, which comes after its first offers."""

    def launch() -> int:
        try:
            return world.core.place_and_launch(job_id, 9, for_gang).launch.launched_count
        except Unavailable:
            return 0

    wait(launch, "a launch")


def view_of(world: World, job_id: JobId) -> GangView:
    job = world.storage.jobs.get(job_id)
    assert job is not None
    return world.storage.pods.gang_view(job, 100)


def members(job_id: JobId, launches: Launches, run: int) -> list[Mapping[str, str]]:
    """Return the variables of the members in a run."""
    return [launches[PodId(job_id, rank, run)][0] for rank in range(SIZE)]


def check(world: World, job_id: JobId, launches: Launches, generation: int) -> None:
    """Check that all members have the same view, which is that of storage."""
    view, found = view_of(world, job_id), members(job_id, launches, generation)
    peers = [pod.peer.endpoint for pod in view.pods[:SIZE]]
    assert (generation, {str(generation)}) == (view.generation, {own["PELOTON_GANG_GENERATION"] for own in found})
    assert [",".join(peers)] * SIZE == [own["PELOTON_GANG_PEERS"] for own in found]
    assert peers == [own["PELOTON_GANG_ADDRESS"] for own in found]
    assert [(*peers[0].split(":"),)] * SIZE == [(own["MASTER_ADDR"], own["MASTER_PORT"]) for own in found]
    assert {"127.0.0.1"} == {pod.address for pod in view.pods}
    assert [pod.port for pod in view.pods[:SIZE]] == [launches[PodId(job_id, i, generation)][1][1] for i in range(SIZE)]
    assert [str(rank) for rank in range(SIZE)] == [own["RANK"] for own in found]
    world.wait_states(job_id, {"RUNNING": len(view.pods)})
    local = [str(pod.local_rank) for pod in view_of(world, job_id).pods[:SIZE]]
    assert local == [own["LOCAL_RANK"] for own in found]


def test_a_gang_and_an_extra(world: World, launches: Launches) -> None:
    """Members have equal peers, with the ports that their hosts hold for them; the extra has their coordinator."""
    job_id = a_gang(world, count=SIZE + 1)

    place(world, job_id)
    place(world, job_id, for_gang=False)

    check(world, job_id, launches, 1)
    extra, first = launches[PodId(job_id, SIZE, 1)][0], launches[PodId(job_id, 0, 1)][0]
    assert first["PELOTON_GANG_COORDINATOR"] == extra["PELOTON_GANG_COORDINATOR"] == first["PELOTON_GANG_ADDRESS"]
    assert ("PELOTON_GANG_RANK" in extra, extra["PELOTON_GANG_MINIMUM"], extra["PELOTON_GANG_MAXIMUM"]) == (
        False,
        str(SIZE),
        str(SIZE + 1),
    )


@pytest.mark.parametrize("generation", [1, 2], ids=["before its commit", "after its commit"])
def test_a_launch_that_breaks_off(world: World, launches: Launches, generation: int) -> None:
    """A host manager that fails between placement and launch leaves no member with another view: the next leader
    launches all of them, in the next generation if they were committed."""
    job_id, pods = a_gang(world), world.storage.host_pods
    pods.launches_to_fail, pods.answers_to_fail = generation % 2, generation - 1
    with pytest.raises(Exception, match="mark_launched"):
        place(world, job_id)
    world.core.stop()
    world.lead()

    if generation == 2:
        restart(world, job_id)
    place(world, job_id)

    check(world, job_id, launches, generation)
    assert {generation} == {pod_id.run_id for pod_id in launches}


def restart(world: World, job_id: JobId) -> None:
    """Let the members wait for each other and be admitted again."""
    wait(lambda: (world.settle(job_id), world.states(job_id) == {"INITIALIZED": SIZE})[1], "the gang's end")
    builders.admit(world.storage, job_id)


def test_a_member_that_is_restarted_restarts_the_gang(world: World, launches: Launches) -> None:
    """The gang has the next generation, and its members new variables."""
    job_id = a_gang(world)
    place(world, job_id)
    world.wait_states(job_id, {"RUNNING": SIZE})

    world.storage.pods.want_new_runs(job_id, [(1, 2)])
    assert [] == [pod for pod in view_of(world, job_id).pods if pod.is_live]
    world.core.kill_running(job_id)
    restart(world, job_id)
    place(world, job_id)

    check(world, job_id, launches, 2)
