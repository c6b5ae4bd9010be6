"""Services with volumes live while their cluster's processes are killed with kill -9, in the middle of what they do to
volumes: never is a volume in two pods, what was written stays, and in the end nothing is left."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import grpc
import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v0.volume import volume_pb2
from peloton.api.v0.volume.svc import volume_svc_pb2
from tests.e2e.database import Stateful, pool_config
from tests.e2e.local import Cluster, temporary
from tests.e2e.shared import FIVE_HOSTS, Lend
from tests.nightly import NIGHTLY

pytestmark = [NIGHTLY, pytest.mark.xdist_group("services")]
SEEDS = [int(seed) for seed in os.environ.get("PELOTON_TEST_SEEDS", "1").split(",")]
ROUNDS = int(os.environ.get("PELOTON_TEST_STEPS", "1"))
INSTANCES = 3
# A process holds the lock of its volume as long as it lives: two of them would meet.
WRITES = """
cd data
exec 9>> lock
flock --nonblock 9 || echo "$PELOTON_TASK_ID" >> clashes
echo "$PELOTON_TASK_ID" >> runs
exec sleep 1000
"""
VOLUME = {"volume": {"containerPath": "data", "sizeMb": 8}}


class Life:
    """One service after the other, on a cluster of either kind."""

    def __init__(self, cluster: Cluster, host_manager: str, seed: int) -> None:
        self.cluster, self.host_manager, self.random = cluster, host_manager, Random(seed)
        self.roles = ("api", "worker", "resmgr", "temporal", host_manager, host_manager, host_manager)
        self.story: list[str] = []
        self.lines: dict[str, int] = {}  # that each volume had at the last read
        config = respool_pb2.CreateRequest(config=pool_config())
        cluster.wait(lambda: cluster.capacity() > 0, "the capacity of the cluster")
        self.pool = cluster.client.respools.CreateResourcePool(config).result.value

    def live(self, number: int) -> None:
        self.service = Stateful(
            self.cluster, self.pool, INSTANCES, WRITES, name=f"kept-{number}", sla={"preemptible": False}, pod=VOLUME
        )
        self.service.create()
        self.kill_when(self.host_manager, self.some_volumes(lambda there: there))
        self.service.wait_update("SUCCEEDED")
        ids = self.list_settled()

        self.repeat(lambda: self.service.restart(batch_size=self.random.randint(1, INSTANCES)))
        self.kill_when(self.random.choice(self.roles), self.some_runs())
        self.service.wait_update("SUCCEEDED")
        assert ids == self.list_settled()

        self.repeat(self.service.stop)
        self.kill_when(self.random.choice(self.roles), lambda: "KILLED" in self.service.states().values())
        self.service.wait(lambda: set(self.service.states().values()) == {"KILLED"}, "the stop")
        self.repeat(self.service.start)
        self.kill_when(self.host_manager, lambda: bool({"LAUNCHED", "RUNNING"} & {*self.service.states().values()}))
        assert ids == self.list_settled()

        self.repeat(lambda: self.service.delete(force=True))
        self.service.wait(lambda: len(self.service.volumes(orphaned=True)) == INSTANCES, "the volumes to be orphans")
        for volume_id in ids.values():
            self.repeat(partial(self.delete, volume_id))
        self.kill_when(self.host_manager, self.some_volumes(lambda there: INSTANCES - there, least=0))
        self.service.wait(lambda: not self.service.volumes(), "the end of the volumes")
        assert [] == self.folders("*")

    # What is done.

    def repeat(self, act: Callable[[], None]) -> None:
        """Repeat a call until it is accepted: roles may be down. A call that was accepted without an answer is refused
        then, or changes nothing."""

        def done() -> bool:
            try:
                act()
            except grpc.RpcError as error:
                self.story.append(str(error.details()))
                return error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED)
            return True

        self.cluster.wait(done, "an API that accepts it")

    def delete(self, volume_id: str) -> None:
        wanted = peloton_pb2.VolumeID(value=volume_id)
        self.cluster.client.volumes.DeleteVolume(volume_svc_pb2.DeleteVolumeRequest(id=wanted))

    def kill_when(self, role: str, condition: Callable[[], bool]) -> None:
        self.cluster.wait(condition, f"the moment to kill {role}")
        self.cluster.kill(role)
        self.story.append(f"killed {role}: {self.folders('*')}")

    def some_volumes(self, count: Callable[[int], int], least: int = 1) -> Callable[[], bool]:
        wanted = self.random.randint(least, INSTANCES)
        return lambda: count(len(self.service.volumes())) >= wanted

    def some_runs(self) -> Callable[[], bool]:
        """Return a condition: the runs of a random number of instances have been replaced."""
        before, wanted = self.service.runs(), self.random.randint(1, INSTANCES)
        return lambda: sum(run > before[instance] for instance, run in self.service.runs().items()) >= wanted

    # What must be.

    def list_settled(self) -> dict[int, str]:
        """All run, each with a volume of its own, which has all that its runs wrote. Returns the volumes."""
        made = {volume_pb2.VolumeState.CREATED}
        self.service.wait_running()
        self.service.wait(lambda: made == {one.state for one in self.service.volumes().values()}, "the volumes")
        ids = {instance: one.id.value for instance, one in self.service.volumes().items()}
        assert set(range(INSTANCES)) == set(ids)
        for instance, volume_id in ids.items():
            [folder] = self.folders(volume_id)
            self.cluster.wait(lambda folder=folder: (folder / "runs").exists(), "the first line")
            lines = (folder / "runs").read_text().split()
            assert {f"{self.service.id}-{instance}"} == set(lines)
            assert len(lines) >= self.lines.get(volume_id, 1)
            assert not (folder / "clashes").exists()
            self.lines[volume_id] = len(lines)
        return ids

    def folders(self, volume_id: str) -> list[Path]:
        """The volume folders of all hosts, whatever their cluster calls them."""
        top = self.cluster.local.data_dir
        mesos = top.glob(f"minicluster/volumes/*/*/peloton-{volume_id}")
        return sorted([*mesos, *top.glob(f"kubernetes/nodes/*/volumes/{volume_id}")])


@pytest.fixture(params=["mesos", "kubernetes"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path, lend: Lend) -> Iterator[tuple[Cluster, str]]:
    """Yield a cluster and the name of its host manager."""
    is_mesos = request.param == "mesos"
    with (
        lend(FIVE_HOSTS) if is_mesos else Cluster(replace(temporary(tmp_path), kubernetes=0, no_mesos=True)) as running
    ):
        yield running, "hostmgr" if is_mesos else "hostmgr-kubernetes"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_life_of_volumes(cluster: tuple[Cluster, str], seed: int) -> None:
    """A life of each seed ends well; PELOTON_TEST_SEEDS=1,2,3 plays others, PELOTON_TEST_STEPS more services; a failure
    prints its story."""
    life = Life(*cluster, seed)
    try:
        for number in range(ROUNDS):
            life.live(number)
    finally:
        print(f"PELOTON_TEST_SEEDS={seed} PELOTON_TEST_STEPS={ROUNDS} plays this again:", *life.story, sep="\n")
