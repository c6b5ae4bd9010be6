"""Access to the ZooKeeper of elections: settings, and what the client is given."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import NodeExistsError

from peloton.errors import InvalidSettings
from services.election import zookeeper
from services.election.zookeeper import Access, ZooKeeperElection, connect
from services.role_settings import read_zookeeper
from services.settings import Settings
from tests.waiting import timeout_s

NO_LEASES: Any = None
ADDRESS = "zk://zk1:2181,zk2:2181/peloton/prod"


class Client:
    """Takes the arguments of a client, and connects to nothing."""

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments

    def start_async(self) -> None:
        """Does nothing."""


class Led:
    """A client of a ZooKeeper where another process leads. It keeps watches as kazoo does."""

    connected = True

    def __init__(self) -> None:
        self.watches: set[Any] = set()
        self.asked_count = 0

    def create(self, *_: object, **__: object) -> None:
        raise NodeExistsError

    def exists(self, _: str, watch: Any) -> None:
        self.watches.add(watch)
        self.asked_count += 1

    def sync(self, _: str) -> None:
        """Does nothing."""

    def get(self, _: str) -> tuple[bytes, Any]:
        return b'{"owner": "another"}', None


def test_settings_name_the_access(tmp_path: Path) -> None:
    """Hosts, node, credentials and files of TLS come from the settings; elections in the database need none."""
    secret = tmp_path / "secret"
    secret.write_text("peloton:s3cret\n")
    settings = Settings(
        election="zookeeper",
        zookeeper=ADDRESS,
        zookeeper_auth_file=str(secret),
        zookeeper_tls=True,
        zookeeper_tls_ca_file="ca.pem",
    )
    assert Access("zk1:2181,zk2:2181", "/peloton/prod", "peloton:s3cret", True, "ca.pem") == read_zookeeper(settings)
    assert read_zookeeper(Settings(zookeeper=ADDRESS)) is None


@pytest.mark.parametrize(
    ("content", "why"),
    [("nothing", "want user:password"), ("a:" + "b" * 2_000, "at most 1000"), (None, "No such file")],
)
def test_an_unreadable_user_is_refused(content: str | None, why: str, tmp_path: Path) -> None:
    """The error names the setting."""
    path = tmp_path / "secret"
    if content is not None:
        path.write_text(content)
    settings = Settings(election="zookeeper", zookeeper=ADDRESS, zookeeper_auth_file=str(path))
    with pytest.raises(InvalidSettings, match=f"PELOTON_ZOOKEEPER_AUTH_FILE.*{why}"):
        read_zookeeper(settings)


def test_an_election_needs_an_address() -> None:
    """An election by ZooKeeper without its address is refused before anything starts."""
    with pytest.raises(InvalidSettings, match="PELOTON_ZOOKEEPER must be set"):
        read_zookeeper(Settings(election="zookeeper"))


def test_the_client_is_given_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes belong to the user and are read by all; TLS has the files of the settings."""
    monkeypatch.setattr(zookeeper, "KazooClient", Client)
    made: Any = connect(Access("zk1:2181", "/p", "me:pw", True, "ca.pem", "cert.pem", "key.pem"), 5.0)
    given = made.arguments
    assert [("digest", "me:pw")] == given.pop("auth_data")
    assert ["digest", "world"] == [acl.id.scheme for acl in given.pop("default_acl")]
    files = {"use_ssl": True, "ca": "ca.pem", "certfile": "cert.pem", "keyfile": "key.pem"}
    assert {"hosts": "zk1:2181", "timeout": 5.0, **files} == given
    assert {"hosts": "zk1:2181", "timeout": 5.0} == connect(Access("zk1:2181", "/p"), 5.0).arguments


async def test_a_standby_leaves_one_watch() -> None:
    """The client keeps each watch until the leader goes, which may be months."""
    client: Any = Led()
    election = ZooKeeperElection(client, "/p", NO_LEASES, "resmgr", 0.004)
    standing_by = asyncio.create_task(election.win())
    async with asyncio.timeout(timeout_s()):
        while client.asked_count < 5:
            await asyncio.sleep(0.001)
    standing_by.cancel()
    await asyncio.gather(standing_by, return_exceptions=True)

    assert 1 == len(client.watches)
