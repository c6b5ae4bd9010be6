"""Lease rows for tests of elections, and of clients that look leaders up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.unit.virtual_time import Gate


class Table:
    """Lease rows in memory, with the rules of storage; ``is_unavailable`` fails every call, ``hang`` holds them."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[str, str, float]] = {}  # role -> owner, address, expiry
        self.epochs: dict[str, int] = {}
        self.is_unavailable = False
        self.hang = Gate(is_open=True)
        self.renewals_hang = Gate(is_open=True)  # closed: renewals that begin now hang, and other calls are answered
        self.asked = 0
        self.lookups = 0
        self._lock = threading.Lock()

    def acquire(self, role: str, owner: str, address: str, ttl_s: float, now_s: float) -> int:
        with self._reach():
            held = self.rows.get(role)
            if held is not None and held[0] != owner and held[2] > now_s:
                return 0
            if held is None or held[0] != owner:
                self.epochs[role] = self.epochs.get(role, 0) + 1
            self.rows[role] = (owner, address, now_s + ttl_s)
            return self.epochs[role]

    def renew(self, role: str, owner: str, address: str, ttl_s: float, now_s: float) -> bool:
        self.renewals_hang.wait()
        with self._reach():
            held_by, _, expires_s = self.rows.get(role, ("", "", 0.0))
            if held_by == owner:
                self.rows[role] = (owner, address, max(expires_s, now_s + ttl_s))
            return held_by == owner

    def holds(self, role: str, owner: str) -> bool:
        self.asked += 1
        with self._reach():
            return self.rows.get(role, ("",))[0] == owner

    def release(self, role: str, owner: str) -> bool:
        with self._reach():
            is_mine = self.rows.get(role, ("",))[0] == owner
            if is_mine:
                del self.rows[role]
            return is_mine

    @contextmanager
    def _reach(self) -> Iterator[None]:
        self.hang.wait()
        if self.is_unavailable:
            raise OSError("storage is away")
        with self._lock:
            yield

    def leader(self, role: str, now_s: float) -> str | None:
        self.lookups += 1
        owner_address = self.rows.get(role)
        return owner_address[1] if owner_address and owner_address[2] > now_s else None

    def clusters(self, now_s: float) -> dict[str, str]:
        self.lookups += 1
        led = {role.removeprefix("hostmgr/"): row for role, row in self.rows.items() if role.startswith("hostmgr/")}
        return {name: address if expiry > now_s else "" for name, (_, address, expiry) in led.items()}


@pytest.fixture
def table() -> Iterator[Table]:
    made = Table()
    yield made
    made.hang.set()
