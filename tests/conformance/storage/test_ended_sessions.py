"""Sessions of the web pages that have ended."""

from __future__ import annotations

import pytest

from peloton.errors import ResourceExhausted
from services.storage import ended_sessions
from services.storage.ended_sessions import KEPT_NS
from services.storage.storage import Storage


def test_a_session_ends_for_its_caller_alone(storage: Storage) -> None:
    """A session that was ended is known by the caller and its id, and may be ended again."""
    for _ in range(2):
        storage.ended_sessions.put("ann", "s1", 100, 10)

    found = [storage.ended_sessions.has(*key) for key in (("ann", "s1"), ("ann", "s2"), ("bob", "s1"))]

    assert [True, False, False] == found


def test_expired_sessions_are_deleted(storage: Storage) -> None:
    """A write deletes rows of sessions that expired long ago."""
    storage.ended_sessions.put("ann", "s1", 100, 10)
    storage.ended_sessions.put("bob", "s2", 2 * KEPT_NS, 99 + KEPT_NS)
    assert storage.ended_sessions.has("ann", "s1")

    storage.ended_sessions.put("bob", "s3", 2 * KEPT_NS, 100 + KEPT_NS)

    assert [False, True] == [storage.ended_sessions.has(*key) for key in (("ann", "s1"), ("bob", "s2"))]


def test_a_caller_has_a_bounded_number_of_them(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A further one is refused, so that those before stay ended; other callers and repetitions are not."""
    monkeypatch.setattr(ended_sessions, "OF_CALLER_MAX", 2)
    for session in ("s1", "s2", "s2"):
        storage.ended_sessions.put("ann", session, 100, 10)
    with pytest.raises(ResourceExhausted, match="2 sessions of the caller"):
        storage.ended_sessions.put("ann", "s3", 100, 10)
    storage.ended_sessions.put("bob", "s3", 100, 10)

    keys = (("ann", "s1"), ("ann", "s2"), ("ann", "s3"), ("bob", "s3"))
    assert [True, True, False, True] == [storage.ended_sessions.has(*key) for key in keys]
