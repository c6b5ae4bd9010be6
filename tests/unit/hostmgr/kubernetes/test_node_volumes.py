"""Volumes in the annotations of a node, in the ledger, and in the mounts of pods."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from peloton.model.ids import PodId
from peloton.model.resources import Resources
from peloton.model.volume import VolumeRecord, VolumeState
from services.hostmgr.driver import PodLaunch
from services.hostmgr.kubernetes.nodes.ledger import Ledger
from services.hostmgr.kubernetes.nodes.node_line import Demand
from services.hostmgr.kubernetes.nodes.node_volumes import NodeVolume, Stage, annotate, volumes_of
from services.hostmgr.kubernetes.pods.manifests import PodManifest
from services.hostmgr.kubernetes.settings import KubernetesSettings
from tests.unit.hostmgr.kubernetes.test_ledger import CAPACITY, claim, free_resources, ledger, node
from tests.unit.hostmgr.kubernetes.test_manifests import DOCKER, JOB, MESOS, template

V = VolumeRecord("v", JOB, 0, 1, "pool", "east", "n1", "data", 1_000, VolumeState.INITIALIZED)
ONE = Demand(Resources.of(1, 100), volume="v")


def use(made: Ledger, volume: VolumeRecord = V, pod: str = "a", demand: Demand = ONE) -> str:
    """Return the reason for which the pod is rejected."""
    return made.use(claim(free_resources(made)["n1"]), [(pod, demand)], {pod: volume}).get(pod, "")


@pytest.mark.parametrize("volume", [NodeVolume(1, Stage.NEW), NodeVolume(2**31 - 1, Stage.GOING)])
def test_a_volume_is_read_as_it_is_written(volume: NodeVolume) -> None:
    """Annotations of other programs are ignored."""
    texts = {key: text for key, text in annotate("v", volume).items() if text is not None}
    assert {"v": volume} == volumes_of({"example.com/x": "1", **texts})


@pytest.mark.parametrize("text", ["", "1000", "1000Mi", "1000Mi here", "-1Mi kept", "1000Mi  kept"])
def test_a_wrong_word_is_named(text: str) -> None:
    """The error has the key and the rule."""
    with pytest.raises(ValueError, match=r"annotation peloton.io/volume-v=.*: want SIZEMi new"):
        volumes_of({"peloton.io/volume-v": text})


def test_the_disk_of_a_volume_is_taken_once() -> None:
    """The disk is taken from the launch on, before the node shows the volume, and after the pod has gone."""
    made = ledger()

    assert "" == use(made)

    left = CAPACITY - Resources(disk_mib=1_000)
    assert left - ONE.held == free_resources(made)["n1"].free
    made.put_node(node(volumes={"v": NodeVolume(1_000, Stage.NEW)}))
    made.put_pod("a", "n1", ONE)
    assert {} == free_resources(made)
    made.drop_pod("a")
    on_node = free_resources(made)["n1"]
    assert (left, frozenset("v")) == (on_node.free, on_node.volumes)
    [host] = made.hosts()
    assert (CAPACITY, Resources(disk_mib=1_000), frozenset("v")) == (host.capacity, host.held, host.volumes)
    made.put_node(node())
    assert CAPACITY == free_resources(made)["n1"].free


def test_a_volume_that_was_not_made_takes_nothing() -> None:
    """The caller that launched the pod drops it."""
    made = ledger()
    use(made)

    made.drop_pod("a")
    made.forget_new_volume("n1", "v")

    assert CAPACITY == free_resources(made)["n1"].free


def test_news_of_volumes_leave_launches_on_their_way_valid() -> None:
    """A launch that was claimed before uses the resources free at that time."""
    made = ledger()
    on_node = free_resources(made)["n1"]
    made.put_node(node(volumes={"w": NodeVolume(500, Stage.NEW)}))
    made.changes()

    assert {} == made.use(claim(on_node), [("a", ONE)], {"a": V})


CREATED = replace(V, state=VolumeState.CREATED)
REFUSALS = [
    (replace(V, size_mib=20_000), {}, "node n1 has 10000 MiB of disk left for the pod's volume v of 20000 MB"),
    (CREATED, {}, "volume v of 1000 MB is not on node n1"),
    (CREATED, {"v": Stage.GOING}, "volume v of 1000 MB is being destroyed"),
    (CREATED, {"v": Stage.GONE}, "volume v of 1000 MB is gone from node n1"),
    (CREATED, {"v": Stage.KEPT}, ""),
    (CREATED, {"v": Stage.NEW}, ""),
    (V, {"v": Stage.KEPT}, ""),
]


@pytest.mark.parametrize(("volume", "stages", "why"), REFUSALS)
def test_whether_a_pod_can_have_its_volume(volume: VolumeRecord, stages: dict[str, Stage], why: str) -> None:
    """A volume is created only if it never existed; the reason says what the node lacks."""
    made = ledger(node(volumes={key: NodeVolume(1_000, stage) for key, stage in stages.items()}))

    assert why == use(made, volume)


def test_a_volume_has_one_pod() -> None:
    """A second pod is rejected; the launch of the same pod may be repeated."""
    made = ledger(node(volumes={"v": NodeVolume(1_000, Stage.KEPT)}))
    assert "" == use(made, CREATED)

    assert "volume v of 1000 MB is in use: pod a has it" == use(made, CREATED, "b")
    assert "" == use(made, CREATED, "a")
    assert frozenset() == free_resources(made)["n1"].volumes


@pytest.mark.parametrize("stage", [Stage.GOING, Stage.GONE])
def test_a_volume_that_goes_is_no_longer_there(stage: Stage) -> None:
    """The host reports a rest of the volume, and the disk is taken until the volume is destroyed."""
    made = ledger(node(volumes={"v": NodeVolume(1_000, stage)}))

    [host] = made.hosts()
    assert (frozenset(), frozenset("v")) == (host.volumes, host.volumes_begun)
    on_node = free_resources(made)["n1"]
    assert (frozenset(), CAPACITY - Resources(disk_mib=1_000)) == (on_node.volumes, on_node.free)


def test_all_containers_have_the_volume_that_outlives_the_pod() -> None:
    """Each pod has its own volume: a folder of its node, in addition to the mounts of all pods."""
    volumes = [{"mode": "RW", "container_path": "/data", "host_path": "/mnt/data"}]
    task = {"container": {**MESOS, "volumes": volumes}, "otherContainers": [{"name": "side", "container": DOCKER}]}
    own = template({**task, "volume": {"containerPath": "a/b", "sizeMB": 5}})
    made = PodManifest(own, KubernetesSettings("in-cluster", volumes="/kept"))

    for is_new, kind in ((True, "DirectoryOrCreate"), (False, "Directory")):
        body = orjson.loads(made.body(PodLaunch(PodId(JOB, 3, 2), own, (), V), "node-1", is_new))
        folder = {"name": "peloton-volume", "hostPath": {"path": "/kept/v", "type": kind}}
        assert [{"name": "volume-0", "hostPath": {"path": "/mnt/data"}}, folder] == body["spec"]["volumes"]
        assert "v" == body["metadata"]["labels"]["peloton.io/volume"]
        mounts = [each["volumeMounts"][-1] for each in body["spec"]["containers"]]
        assert [{"name": "peloton-volume", "mountPath": "/a/b"}] * 2 == mounts
