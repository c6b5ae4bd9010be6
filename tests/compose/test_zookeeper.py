"""The bridge registers in the release of ZooKeeper that docker-compose.yml names."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

from services.aurorabridge.discovery import Member
from tests.nightly import NIGHTLY
from tests.waiting import timeout_s
from tests.zookeeper import zookeeper

pytestmark = [NIGHTLY, pytest.mark.xdist_group("compose"), pytest.mark.timeout(600)]

__all__ = ["zookeeper"]  # a fixture


def wait_for(is_met: Callable[[], bool], what: str) -> None:
    began_s = time.monotonic()
    while not is_met():
        assert time.monotonic() - began_s < timeout_s(), what
        time.sleep(0.1)


def test_a_member_lasts_as_long_as_its_bridge(zookeeper: str) -> None:
    """A member appears when the server answers, again when its session is gone, and leaves with its bridge."""
    member = Member(f"zk://{zookeeper}/aurora/scheduler", "b1", 5396)
    watching = KazooClient(hosts=zookeeper, timeout=10)
    watching.start(timeout=120)

    def members() -> dict[str, Any]:
        member.check()
        names = watching.get_children("/aurora/scheduler") if watching.exists("/aurora/scheduler") else []
        return {n: json.loads(watching.get(f"/aurora/scheduler/{n}")[0]) for n in names if n.startswith("member_")}

    wait_for(lambda: len(members()) == 1, "the member is there")
    [(first, data)] = members().items()
    thief = KazooClient(hosts=zookeeper, client_id=member._client.client_id)
    thief.start()
    thief.stop()  # it ends the session of both
    thief.close()
    wait_for(lambda: [*members()] not in ([], [first]), "a member of the next session")

    assert {"host": "b1", "port": 5396} == data["additionalEndpoints"]["http"]
    assert 1 == len(members())
    member.close()
    assert ["_aurorabridge_node"] == watching.get_children("/aurora/scheduler")
    watching.stop()
    watching.close()
