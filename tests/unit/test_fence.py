"""The fence of what a leader sends: outside its lease it renews first, and sends nothing if it cannot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from peloton.errors import LeadershipLost
from services.fence import Fence
from services.hostmgr.kubernetes.apiserver.access import Access
from services.hostmgr.kubernetes.apiserver.kubeconfig import ClusterEntry, UserEntry
from services.hostmgr.kubernetes.apiserver.wire import ApiServer, Request
from services.hostmgr.mesos.operator import Operator
from services.hostmgr.mesos.subscription import Disconnected, Subscription
from tests.unit.hostmgr.kubernetes.scripted import Asked, answer, run_scripted

TTL_S = 5.0


class Lease:
    """The lease of a leader at second 0, and its fence."""

    def __init__(self) -> None:
        self.now_s, self.is_mine, self.renewals = 0.0, True, 0
        self.error: Exception | None = None
        self.lost: list[str] = []
        self.fence = Fence("hostmgr/a", "me", TTL_S, self._renew, self.lost.append, lambda: self.now_s)
        self.fence.begin(3)
        self.fence.extend(TTL_S)

    def _renew(self) -> bool:
        self.renewals += 1
        if self.error:
            raise self.error
        if self.is_mine:
            self.fence.extend(self.now_s + TTL_S)
        return self.is_mine


def test_a_leader_sends_within_its_lease() -> None:
    """Storage is asked for nothing, and afterwards renews the lease once."""
    lease = Lease()
    lease.now_s = TTL_S - 0.1
    assert ("", 0) == (lease.fence.refusal(), lease.renewals)
    lease.now_s = 3 * TTL_S
    assert ["", ""] == [lease.fence.refusal() for _ in range(2)]
    assert 1 == lease.renewals


def test_a_replaced_leader_sends_nothing() -> None:
    """The process learns of the loss once, before it sends."""
    lease = Lease()
    lease.now_s, lease.is_mine = TTL_S, False
    assert "hostmgr/a: another process leads" == lease.fence.refusal()
    assert "this process does not lead hostmgr/a" == lease.fence.refusal()
    assert (["hostmgr/a: another process leads"], 1) == (lease.lost, lease.renewals)


def test_a_leader_without_storage_sends_nothing_outside_its_lease() -> None:
    """Another process may lead; the leader sends again when storage answers."""
    lease = Lease()
    lease.now_s, lease.error = TTL_S, OSError("away")
    assert "hostmgr/a: the lease has expired, and storage does not renew it: away" == lease.fence.refusal()
    lease.error = None
    assert "" == lease.fence.refusal()
    assert [] == lease.lost


def test_a_standby_sends_nothing() -> None:
    """Messages are refused before the election, and after the resignation."""
    fence = Fence("resmgr", "me", TTL_S, lambda: True)
    fence.extend(1e18)
    assert "this process does not lead resmgr" == fence.refusal()
    fence.begin(1)
    assert "" == fence.refusal()
    fence.end()
    with pytest.raises(LeadershipLost, match="does not lead"):
        fence.guard(lambda: "a channel")()


def test_nothing_reaches_mesos() -> None:
    """A refused leader does not subscribe, which would end the subscription of its successor, and calls nothing."""
    subscription = Subscription(None, {}, "127.0.0.1:1", refusal=lambda: "replaced")
    subscription.stream_id, subscription._master = "stream", "127.0.0.1:1"
    pipe: Any = FakePipe()
    subscription._pipe = pipe
    subscription._pipe_stream_id = "stream"
    with pytest.raises(Disconnected, match="replaced"):
        subscription.send_all([{"type": "ACCEPT"}])
    assert [] == pipe.posted
    assert subscription._open(None) is None  # type: ignore[arg-type]


def test_a_replaced_operator_changes_nothing() -> None:
    """Calls of the operator API are refused as those of the framework are."""
    seen: list[Asked] = []

    def serve(asked: Asked) -> Iterator[bytes]:
        seen.append(asked)
        yield answer(200, {})

    with run_scripted(serve) as server, pytest.raises(OSError, match="replaced"):
        Operator(refusal=lambda: "replaced").call(server.address, {"type": "UPDATE_MAINTENANCE_SCHEDULE"})
    assert [] == seen


def test_nothing_changes_in_kubernetes() -> None:
    """Each request looks at the fence before it is sent: one batch is cut short in its middle; reads are answered."""
    seen: list[Asked] = []

    def serve(asked: Asked) -> Iterator[bytes]:
        seen.append(asked)
        yield answer(200, {"kind": "Pod"})

    with run_scripted(serve) as server:
        access = Access(ClusterEntry(f"http://{server.address}"), UserEntry())
        api = ApiServer(access, connections=1, refusal=lambda: "replaced" if len(seen) >= 2 else "")
        answers = api.ask_all([Request("POST", f"/pods/{i}", b"{}") for i in range(4)])
        assert [200, 200, "replaced", "replaced"] == [
            str(one) if isinstance(one, OSError) else one.status for one in answers
        ]
        assert api.ask(Request("GET", "/pods/0")).is_ok
        api.close()
    assert ["POST", "POST", "GET"] == [one.method for one in seen]


class FakePipe:
    def __init__(self) -> None:
        self.posted: list[Any] = []

    def post(self, bodies: Any, stream_id: str) -> list[None]:
        self.posted += bodies
        return [None for _ in bodies]
