"""A database of examples/ keeps its rows through a rolling restart, a lost host, a stop and a start."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from peloton.api.v0 import peloton_pb2 as v0_peloton_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v0.volume import volume_pb2
from peloton.api.v0.volume.svc import volume_svc_pb2
from peloton.lifecycle.failed_placements import BACKOFF_STEP_S
from peloton.lifecycle.volumes import LISTING_LAG_S
from services.hostmgr.volumes import POLL_PERIOD_S
from tests.e2e.database import Database, pool_config
from tests.e2e.local import Cluster
from tests.e2e.shared import FIVE_HOSTS, Lend

LOSS_S = LISTING_LAG_S + POLL_PERIOD_S + 30.0
"""A host that has left is believed when its volume has not changed for a while, and looked at from time to time."""

pytestmark = pytest.mark.xdist_group("services")


@pytest.fixture(scope="module")
def cluster(lend: Lend) -> Iterator[Cluster]:
    with lend(FIVE_HOSTS) as running:
        yield running


def test_a_database_through_its_life(cluster: Cluster) -> None:
    """Rows are there after each of: a rolling restart, kill -9 of a host, a stop and a start. Volumes stay in their
    places, cannot be deleted while the database lives, and are orphans when it is gone."""
    cluster.wait(lambda: cluster.capacity() > 0, "the capacity of the cluster")
    pool = cluster.client.respools.CreateResourcePool(respool_pb2.CreateRequest(config=pool_config())).result.value
    database = Database(cluster, pool, 2)
    database.create().wait_update("SUCCEEDED")
    database.wait_serving()
    database.put("a", "1")
    places = database.places()
    made = volume_pb2.VolumeState.CREATED
    database.wait(lambda: {made} == {one.state for one in database.volumes().values()}, "the volumes")
    ids = {one.id.value for one in database.volumes().values()}

    database.restart(batch_size=1)
    database.wait_update("SUCCEEDED")
    database.wait_serving()
    assert (["1", "1"], places) == (database.get_all("a"), database.places())
    database.put("b", "2")

    cluster.drill(f"agents/{places[0]}/stop", {"now": True})
    lost = volume_pb2.VolumeState.LOST
    database.wait(lambda: database.volumes()[0].state == lost, "the loss of the volume", LOSS_S)
    assert "is not in cluster" in database.volumes()[0].message
    cluster.drill(f"agents/{places[0]}/start", {"now": True})
    database.wait(lambda: database.volumes()[0].state == made, "the return of the volume")
    database.wait(lambda: set(database.states().values()) == {"RUNNING"}, "both to run", BACKOFF_STEP_S + 30.0)
    database.wait_serving()
    assert (["1", "1"], ["2", "2"], places) == (database.get_all("a"), database.get_all("b"), database.places())

    database.stop()
    database.wait(lambda: set(database.states().values()) == {"KILLED"}, "the stop")
    database.start()
    database.wait_serving()
    assert (["2", "2"], places) == (database.get_all("b"), database.places())
    assert ids == {one.id.value for one in database.volumes().values()}
    volume_id = v0_peloton_pb2.VolumeID(value=database.volumes()[1].id.value)
    with pytest.raises(grpc.RpcError, match="is in use: pod"):
        cluster.client.volumes.DeleteVolume(volume_svc_pb2.DeleteVolumeRequest(id=volume_id))

    database.delete(force=True)
    database.wait(lambda: set(database.volumes(orphaned=True)) == {0, 1}, "the volumes to be orphans")
    for one in database.volumes().values():
        cluster.client.volumes.DeleteVolume(volume_svc_pb2.DeleteVolumeRequest(id=one.id))
    database.wait(lambda: not database.volumes(), "the end of the volumes")
    assert not list((cluster.local.data_dir / "minicluster/volumes").glob("*/*/*"))
