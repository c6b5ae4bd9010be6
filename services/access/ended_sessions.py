"""Sessions of the web pages that their viewers have ended. All processes with the database refuse them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from peloton.access.caller import Caller
from peloton.errors import InvalidArgument, Unauthenticated
from peloton.model.times import NS_PER_S

SESSION_CHARS_MAX = 64
AHEAD_S_MAX = 8 * 86_400
"""Maximum time to the expiry of a session, in seconds: a day more than the longest one, since clocks differ."""


class Records(Protocol):
    """Implemented by ``services.storage.ended_sessions``."""

    def put(self, caller: str, session: str, expires_ns: int, now_ns: int) -> None: ...

    def has(self, caller: str, session: str) -> bool: ...


class EndedSessions:
    """``run`` makes a blocking call in a thread. A caller ends sessions of its own alone."""

    def __init__(self, records: Records, run: Callable[..., Awaitable[Any]]) -> None:
        self._records, self._run = records, run

    async def end(self, caller: Caller, session: str, expires_ns: int) -> None:
        """Refuse a session from now on. A caller without credentials has none. Raises InvalidArgument."""
        if not session or caller.is_anonymous:
            return
        now_ns = time.time_ns()
        _check_length(session)
        if expires_ns > now_ns + AHEAD_S_MAX * NS_PER_S:
            ahead_s = (expires_ns - now_ns) // NS_PER_S
            raise InvalidArgument(f"the session expires in {ahead_s:,} s: want at most {AHEAD_S_MAX:,}")
        await self._run(self._records.put, _key_of(caller), session, expires_ns, now_ns)

    async def check(self, caller: Caller, session: str) -> None:
        """Raise Unauthenticated for a session that has ended."""
        if not session or caller.is_anonymous:
            return
        _check_length(session)
        if await self._run(self._records.has, _key_of(caller), session):
            raise Unauthenticated("the session has ended: sign in")


def _check_length(session: str) -> None:
    if len(session) > SESSION_CHARS_MAX:
        raise InvalidArgument(f"the id of a session has {len(session):,} characters, at most {SESSION_CHARS_MAX}")


def _key_of(caller: Caller) -> str:
    """Return a text of fixed length that no other caller has."""
    return hashlib.sha256("\0".join((caller.kind, caller.issuer, caller.name)).encode()).hexdigest()
