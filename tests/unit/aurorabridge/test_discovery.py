"""Registration in ZooKeeper, with a ZooKeeper of one dictionary. tests/compose has a real one."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss

from services.aurorabridge import discovery
from services.aurorabridge.discovery import Member, keep_registered

ADDRESS = "zk://zk1:2181,zk2:2181/aurora/scheduler"


class ZooKeeper:
    """The nodes, each with its data and the session that it goes with, and one client."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {}
        self.arguments: dict[str, Any] = {}
        self.connected = False
        self.session = 1
        self.fault: Exception | None = None
        self.count = 0

    def __call__(self, **arguments: Any) -> ZooKeeper:
        self.arguments = arguments
        return self

    def start_async(self) -> None:
        self.connected = True

    @property
    def client_id(self) -> tuple[int, bytes]:
        return self.session, b""

    def end_session(self) -> None:
        self.nodes = {path: node for path, node in self.nodes.items() if node[1] != self.session}
        self.session += 1

    def ensure_path(self, path: str) -> None:
        if self.fault is not None:
            raise self.fault
        self.nodes.setdefault(path, (b"", 0))

    def get_children(self, path: str) -> list[str]:
        return [one.rpartition("/")[2] for one in self.nodes if one.rpartition("/")[0] == path]

    def exists(self, path: str) -> Any:
        return SimpleNamespace(ephemeralOwner=self.nodes[path][1]) if path in self.nodes else None

    def create(self, path: str, data: bytes, ephemeral: bool, sequence: bool) -> str:
        assert ephemeral
        assert sequence
        made = f"{path}{self.count:010}"
        self.count += 1
        self.nodes[made] = (data, self.session)
        return made

    def stop(self) -> None:
        self.end_session()

    def close(self) -> None:
        self.connected = False

    def members(self) -> dict[str, Any]:
        return {path: json.loads(node[0]) for path, node in self.nodes.items() if "member_" in path}


def test_a_member_is_as_clients_of_aurora_read_it() -> None:
    """The member names the endpoint twice, as a service and as the additional endpoint http."""
    zookeeper = ZooKeeper()
    endpoint = {"host": "b1", "port": 5396}

    Member(ADDRESS, "b1", 5396, zookeeper).check()

    assert "zk1:2181,zk2:2181" == zookeeper.arguments["hosts"]
    assert {
        "/aurora/scheduler/member_0000000000": {
            "serviceEndpoint": endpoint, "additionalEndpoints": {"http": endpoint}, "status": "ALIVE"
        }
    } == zookeeper.members()  # fmt: skip
    assert "/aurora/scheduler/_aurorabridge_node" in zookeeper.nodes


def test_a_member_is_made_once_for_each_session() -> None:
    """The end of a session removes the member, and the next check creates one for the new session. Others stay."""
    zookeeper = ZooKeeper()
    zookeeper.nodes["/aurora/scheduler/member_other"] = (b"{}", 99)
    member = Member(ADDRESS, "b1", 5396, zookeeper)
    member.check()
    member.check()
    zookeeper.end_session()
    member.check()

    assert ["/aurora/scheduler/member_other", "/aurora/scheduler/member_0000000001"] == [*zookeeper.members()]
    member.close()
    assert ["/aurora/scheduler/member_other"] == [*zookeeper.members()]


def test_nothing_is_checked_without_a_connection() -> None:
    """A call of kazoo would wait for the connection, and with it the end of the process."""
    zookeeper = ZooKeeper()
    member = Member(ADDRESS, "b1", 5396, zookeeper)
    zookeeper.connected = False
    member.check()

    assert {} == zookeeper.nodes


async def test_a_fault_is_tried_again_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The bridge serves without ZooKeeper, and registers when it is back; it leaves at the end."""
    monkeypatch.setattr(discovery, "CHECK_S", 0.01)
    zookeeper = ZooKeeper()
    zookeeper.fault = ConnectionLoss("away")
    task = asyncio.create_task(keep_registered(Member(ADDRESS, "b1", 5396, zookeeper)))
    while not caplog.records:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)  # some more checks
    zookeeper.fault = None
    while not zookeeper.members():
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait({task})

    assert ["not registered in ZooKeeper, retrying: ConnectionLoss away"] == [
        one.getMessage() for one in caplog.records if one.levelname == "WARNING"
    ]
    assert ({}, False) == (zookeeper.members(), zookeeper.connected)
