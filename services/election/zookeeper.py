"""Leadership and discovery by ZooKeeper: the leader of a role owns an ephemeral node, which has its address.

ZooKeeper decides which process leads; the row of the role in storage has the epoch that fences its writes. A new leader
reads the epoch, makes sure that it owns the node still, and only then raises the epoch from the one that it read. So
the epochs of two leaders rise in the order in which they owned the node, however long either of them stood still.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import make_acl, make_digest_acl

from peloton.errors import Unavailable
from peloton.model.ids import HOSTMGR_ROLE
from peloton.ports import EpochRecords
from services.fence import Fence, boot_s

log = logging.getLogger(__name__)

T = TypeVar("T")
CHECKS_PER_TTL = 4
GRACE_TTLS = 0.125
"""Fraction of the ttl for which a leader that is late waits for the answer of ZooKeeper."""
LEADER = "leader"
FAULTS = (KazooException, KazooTimeoutError, OSError, Unavailable)


@dataclass(frozen=True)
class Access:
    """Address of ZooKeeper, and the credentials for it."""

    hosts: str
    root: str
    digest: str = ""
    """``user:password``; empty: nodes are open to all."""
    tls: bool = False
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""


def connect(access: Access, session_s: float) -> KazooClient:
    """Return a client that connects in the background, again and again."""
    more: dict[str, Any] = {}
    if access.digest:
        user, _, password = access.digest.partition(":")
        more["auth_data"] = [("digest", access.digest)]
        # All may read who leads.
        more["default_acl"] = [make_digest_acl(user, password, all=True), make_acl("world", "anyone", read=True)]
    if access.tls:
        more |= {
            "use_ssl": True,
            "ca": access.ca_file or None,
            "certfile": access.cert_file or None,
            "keyfile": access.key_file or None,
        }
    client = KazooClient(hosts=access.hosts, timeout=session_s, **more)
    client.start_async()
    return client


def path_of(root: str, role: str) -> str:
    return f"{root}/{role}/{LEADER}"


class ZooKeeper:
    """The session of this process, for its elections and its look-ups."""

    def __init__(self, access: Access, session_s: float) -> None:
        self._client, self._root = connect(access, session_s), access.root

    def election(self, leases: EpochRecords, role: str, ttl_s: float, lost: Callable[[str], None]) -> ZooKeeperElection:
        return ZooKeeperElection(self._client, self._root, leases, role, ttl_s, lost)

    def directory(self, leases: EpochRecords) -> ZooKeeperDirectory:
        return ZooKeeperDirectory(self._client, self._root, leases)

    def close(self) -> None:
        self._client.stop()
        self._client.close()


class ZooKeeperElection:
    """Implements ``Election``. Its session is that of ``client``, which other roles of the process may share."""

    def __init__(
        self,
        client: KazooClient,
        root: str,
        leases: EpochRecords,
        role: str,
        ttl_s: float,
        lost: Callable[[str], None] = log.error,
    ) -> None:
        self._client, self._leases, self._role, self._ttl_s = client, leases, role, ttl_s
        self._path = path_of(root, role)
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._address = ""
        self._node = 0  # the transaction that created the node of this leader
        self._confirmed_s = 0.0  # when the last successful check began
        self.fence = Fence(role, self._owner, ttl_s, self._confirm, lost)
        # Separate threads, so that a call that hangs delays no other.
        self._threads = ThreadPoolExecutor(3, thread_name_prefix=f"{role} election")

    async def win(self, stand_by: Callable[[], None] = lambda: None) -> None:
        stands_by, fault, changed = False, "", asyncio.Event()
        loop = asyncio.get_running_loop()

        def wake(_: object) -> None:  # one function: the client keeps each that is given, until the leader goes
            loop.call_soon_threadsafe(changed.set)

        while True:
            changed.clear()
            try:
                if epoch := await self._run(self._try, wake):
                    break
                fault = ""
            except FAULTS as error:
                text = f"{type(error).__name__} {error}"
                if text != fault:
                    log.warning("%s: no election, retrying: %s", self._role, text)
                fault = text
            if not stands_by and not fault:
                log.info("%s: another process is the leader, standing by", self._role)
                stand_by()
                stands_by = True
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), self._ttl_s / CHECKS_PER_TTL)
        self.fence.begin(epoch)

    def _try(self, changed: Callable[[object], None]) -> int:
        """Return the epoch if this process leads now, else 0; ``changed`` is called when the leader goes."""
        began_s, booted_s = time.monotonic(), boot_s()
        try:
            self._client.create(self._path, self._data(), ephemeral=True, makepath=True)
        except NodeExistsError:  # of another process, or of a call of this one whose answer was lost
            self._client.exists(self._path, watch=changed)
        found = self._read()
        if found is None or found[0].get("owner") != self._owner:
            return 0
        self._node = found[1].czxid
        before = self._leases.epoch(self._role)
        if not self._owns_node():
            return 0
        row = self._role, self._owner, self._address, self._ttl_s, time.time()
        epoch = self._leases.succeed(*row, epoch=before)
        if epoch:
            self._confirmed_s = began_s
            self.fence.extend(booted_s + self._safe_ttl_s())
        return epoch

    async def announce(self, address: str) -> None:
        self._address = address
        try:
            await self._run(self._publish)
        except FAULTS as error:
            raise Unavailable(f"{self._role}: leadership lost: {type(error).__name__} {error}") from error
        log.info("%s: became leader at %s, epoch %d", self._role, address, self.fence.epoch)

    def _publish(self) -> None:
        if not self._owns_node():
            raise Unavailable("the node has another owner")
        self._client.set(self._path, self._data())
        self._renew_row()

    async def hold(self) -> None:
        while True:
            await asyncio.sleep(self._ttl_s / CHECKS_PER_TTL)
            check = asyncio.ensure_future(self._run(self._confirm))
            await asyncio.wait({check}, timeout=max(self._deadline_in_s(), self._ttl_s * GRACE_TTLS))
            if check.done() and not check.exception():
                if not check.result():
                    break
                await asyncio.wait({asyncio.ensure_future(self._run(self._renew_row))}, timeout=self._ttl_s)
            elif self._deadline_in_s() <= 0:
                log.warning("%s: ZooKeeper does not say that this process leads", self._role)
                break
            check.cancel()
        raise Unavailable(f"{self._role}: leadership lost")

    def _deadline_in_s(self) -> float:
        """Return the seconds until this leader must give up, unless ZooKeeper says that it leads."""
        return self._confirmed_s + self._safe_ttl_s() * (1 - 1 / CHECKS_PER_TTL) - time.monotonic()

    async def resign(self) -> None:
        self.fence.end()
        try:
            async with asyncio.timeout(self._ttl_s):
                await self._run(self._leave)
        except Exception as error:
            log.warning("%s: node not released: %s %s", self._role, type(error).__name__, error)
        self._threads.shutdown(wait=False)

    def _leave(self) -> None:
        self._leases.release(self._role, self._owner)
        if self._owns_node():
            self._client.delete(self._path)

    def _confirm(self) -> bool:
        """Return whether this process leads still, and for how long no other one can. Raises KazooException."""
        began_s, booted_s = time.monotonic(), boot_s()
        is_mine = self._owns_node()
        if is_mine:
            self._confirmed_s = began_s
            self.fence.extend(booted_s + self._safe_ttl_s())
        return is_mine

    def _owns_node(self) -> bool:
        found = self._read()
        return found is not None and found[1].czxid == self._node

    def _read(self) -> tuple[dict[str, Any], Any] | None:
        """Return the newest value of the node, and its state."""
        if not self._client.connected:
            raise Unavailable("ZooKeeper does not answer")
        self._client.sync(self._path)  # the server may be behind the others
        try:
            value, stat = self._client.get(self._path)
        except NoNodeError:
            return None
        return _decode(value), stat

    def _renew_row(self) -> None:
        """Show the leader in storage, too, where pages and commands look; only the epoch counts there."""
        try:
            if not self._leases.renew(self._role, self._owner, self._address, self._ttl_s, time.time()):
                self.fence.fail(f"{self._role}: another process leads, epoch {self.fence.epoch} is over")
        except Exception as error:
            log.warning("%s: leader not shown in storage: %s", self._role, error)

    def _safe_ttl_s(self) -> float:
        """Return the seconds for which the node outlasts a check: the server may have set a shorter session."""
        return min(self._ttl_s, (self._client._session_timeout or self._ttl_s * 1_000) / 1_000)

    def _data(self) -> bytes:
        host, _, port = self._address.rpartition(":")
        known = {"hostname": host, "grpc": int(port)} if port else {}
        return orjson.dumps({**known, "address": self._address, "owner": self._owner, "epoch": self.fence.epoch})

    async def _run(self, call: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *args)


class ZooKeeperDirectory:
    """Implements ``Directory``: addresses come from ZooKeeper, the names of clusters without a leader from storage."""

    def __init__(self, client: KazooClient, root: str, leases: EpochRecords) -> None:
        self._client, self._root, self._leases = client, root, leases
        self._lock = threading.Lock()
        self._last: dict[str, str | None] = {}

    def leader(self, role: str, now_s: float) -> str | None:
        """Return the address; the last one known while ZooKeeper does not answer."""
        try:
            if not self._client.connected:
                raise Unavailable("ZooKeeper does not answer")
            address: str | None = str(_decode(self._client.get(path_of(self._root, role))[0]).get("address", ""))
        except NoNodeError:
            address = None
        except FAULTS:
            with self._lock:
                return self._last.get(role)
        with self._lock:
            self._last[role] = address
        return address

    def clusters(self, now_s: float) -> dict[str, str]:
        known = dict.fromkeys(self._leases.clusters(now_s), "")
        try:
            known |= dict.fromkeys(self._client.get_children(f"{self._root}/{HOSTMGR_ROLE.rstrip('/')}"), "")
        except FAULTS:
            log.debug("no host manager in ZooKeeper yet")
        return {name: self.leader(f"{HOSTMGR_ROLE}{name}", now_s) or "" for name in sorted(known)}


def _decode(value: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(value)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
