"""The database of examples/ on Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import pytest

from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v0.volume import volume_pb2
from peloton.api.v0.volume.svc import volume_svc_pb2
from tests.e2e.database import Database, pool_config
from tests.e2e.local import Cluster, temporary
from tests.kubernetes.client import MERGE, Client, login_of
from tests.nightly import NIGHTLY

pytestmark = [NIGHTLY, pytest.mark.xdist_group("kubernetes")]
LOST, CREATED = volume_pb2.VolumeState.LOST, volume_pb2.VolumeState.CREATED


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = replace(temporary(tmp_path_factory.mktemp("stateful")), kubernetes=0, no_mesos=True)
    with Cluster(settings) as running:
        yield running


@pytest.fixture
def kubectl(cluster: Cluster) -> Iterator[Client]:
    assert cluster.local.kubernetes is not None
    with Client(login_of(cluster.local.kubernetes.kubeconfig)) as client:
        yield client


def test_a_database_through_its_life(cluster: Cluster, kubectl: Client) -> None:
    """Rows are there after a rolling restart and kill -9 of the host manager. The volume of a node that is deleted is
    LOST until an operator restores it. Deleted volumes leave nothing."""
    nodes = cluster.local.kubernetes
    assert nodes is not None
    cluster.wait(lambda: cluster.capacity() > 0, "the capacity of the cluster")
    pool = cluster.client.respools.CreateResourcePool(respool_pb2.CreateRequest(config=pool_config())).result.value
    database = Database(cluster, pool, 2)
    database.create().wait_update("SUCCEEDED")
    database.wait_serving()
    database.put("a", "1")
    places = database.places()
    database.wait(lambda: {CREATED} == {one.state for one in database.volumes().values()}, "the volumes")
    volumes = {instance: one.id.value for instance, one in database.volumes().items()}

    cluster.kill("hostmgr-kubernetes")
    database.restart(batch_size=1)
    database.wait_update("SUCCEEDED")
    database.wait_serving()
    assert (["1", "1"], places) == (database.get_all("a"), database.places())

    path = f"/api/v1/nodes/{places[0]}"
    annotations = annotations_of(kubectl, path)
    nodes.act_on_node(places[0], "stop")
    assert HTTPStatus.OK == kubectl.ask("DELETE", path).status
    database.wait(lambda: database.volumes()[0].state == LOST, "the loss of the volume")
    nodes.act_on_node(places[0], "start")
    cluster.wait(
        lambda: len(cluster.client.hosts.QueryHosts(host_svc_pb2.QueryHostsRequest()).host_infos) == 3,
        "the node, which shows no volume",
    )
    assert LOST == database.volumes()[0].state
    assert HTTPStatus.OK == kubectl.ask("PATCH", path, {"metadata": {"annotations": annotations}}, MERGE).status
    database.wait_serving()
    assert (["1", "1"], places) == (database.get_all("a"), database.places())
    assert volumes == {instance: one.id.value for instance, one in database.volumes().items()}

    database.delete(force=True)
    database.wait(lambda: set(database.volumes(orphaned=True)) == {0, 1}, "the volumes to be orphans")
    for one in database.volumes().values():
        cluster.client.volumes.DeleteVolume(volume_svc_pb2.DeleteVolumeRequest(id=one.id))
    database.wait(lambda: not database.volumes(), "the end of the volumes")
    assert [{}, {}] == [annotations_of(kubectl, f"/api/v1/nodes/{place}") for place in places.values()]
    assert not list((nodes.folder / "nodes").glob("*/volumes/*"))


def annotations_of(kubectl: Client, path: str) -> dict[str, Any]:
    found: dict[str, Any] = kubectl.ask("GET", path).json()["metadata"].get("annotations") or {}
    return {key: text for key, text in found.items() if key.startswith("peloton.io/volume-")}
