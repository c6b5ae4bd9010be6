"""Requests that web pages can make a browser send: none changes or shows anything."""

from __future__ import annotations

import pytest

from services.lab.shared.http.cross_site import Guard
from tests.unit.lab.mesos.conftest import Start
from tests.unit.lab.mesos.scheduler import request

STOP = "/minicluster/agents/a0/stop"


@pytest.mark.parametrize(
    ("host", "listens_on", "is_ours"),
    [
        ("localhost:5050", "127.0.0.1", True),
        ("LOCALHOST.", "127.0.0.1", True),
        ("127.0.0.1:5050", "127.0.0.1", True),
        ("127.9.8.7", "127.0.0.1", True),
        ("[::1]:5050", "127.0.0.1", True),
        ("[::1]", "127.0.0.1", True),
        ("mesos.test:5050", "127.0.0.1", True),
        ("10.1.2.3:5050", "10.1.2.3", True),
        ("10.1.2.3:5050", "0.0.0.0", True),
        ("10.1.2.3:5050", "127.0.0.1", False),
        ("evil.test:5050", "127.0.0.1", False),
        ("evil.test:5050", "0.0.0.0", False),
        ("localhost.evil.test", "127.0.0.1", False),
        ("127.0.0.1.evil.test", "127.0.0.1", False),
        ("localhost:evil.test", "127.0.0.1", False),
    ],
)
def test_a_foreign_name_of_this_machine_is_refused(host: str, listens_on: str, is_ours: bool) -> None:
    """Addresses, localhost and allowed names are accepted; any other name may be a page's own."""
    fault = Guard(listens_on, ["mesos.test"]).fault({"host": host})

    assert is_ours is (fault is None)


@pytest.mark.parametrize(
    "path", ["/state", "/api/v1", "/api/v1/scheduler", "/minicluster/agents", "/teardown", "/nosuch"]
)
async def test_every_page_of_the_master_reads_the_host(start: Start, path: str) -> None:
    """The Host header is checked first, so that a page cannot read under its own domain name."""
    cluster, _ = await start()

    status, text = await request(cluster.port, "POST", path, headers={"Host": "evil.test"})

    assert (403, "Host 'evil.test' is not served here: --allow-host allows more names than localhost") == (status, text)


async def test_an_agent_reads_the_host(start: Start) -> None:
    """The Host header is checked on agents too, since their files have the output of pods."""
    cluster, _ = await start()
    port = cluster.master.registry.by_host["a0"].port

    assert 403 == (await request(port, "GET", "/files/browse?path=/", headers={"Host": "evil.test"}))[0]
    assert 200 == (await request(port, "GET", "/health"))[0]


@pytest.mark.parametrize("origin", ["http://evil.test", "null", "http://localhost:3000"])
async def test_a_page_of_another_origin_is_refused(start: Start, origin: str) -> None:
    """A page of another origin is rejected, whatever its content type, even from this machine."""
    cluster, _ = await start()

    status, text = await request(cluster.port, "POST", STOP, {}, {"Origin": origin})

    assert (403, f"Requests of pages from '{origin}' are refused") == (status, text)
    assert cluster.master.registry.by_host["a0"].online


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain", ""])
@pytest.mark.parametrize("path", [STOP, "/minicluster/master/failover", "/minicluster/images"])
async def test_forms_and_plain_text_are_refused(start: Start, kind: str, path: str) -> None:
    """Browsers send them to others without asking."""
    cluster, _ = await start()

    status, text = await request(cluster.port, "POST", path, {}, {"Content-Type": kind})

    assert (415, f"Expecting 'Content-Type' of application/json, not '{kind}'") == (status, text)


async def test_drills_ask_for_the_token(start: Start) -> None:
    """Calls that change something need it, calls that only read do not."""
    cluster, _ = await start(token="secret")

    for given in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer s\u00e9cret"}):
        assert 401 == (await request(cluster.port, "POST", STOP, {}, given))[0]
    assert cluster.master.registry.by_host["a0"].online
    assert 200 == (await request(cluster.port, "GET", "/minicluster/agents"))[0]
    assert 200 == (await request(cluster.port, "POST", STOP, {}, {"Authorization": "Bearer secret"}))[0]
