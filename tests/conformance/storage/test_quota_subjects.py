"""Subjects of the creators of jobs."""

from __future__ import annotations

from services.storage.storage import Storage


def test_the_last_subjects_of_a_user_are_kept(storage: Storage) -> None:
    """Each write replaces those of the user alone."""
    storage.creators.put("ann", ["user:ann", "group:maps"])
    storage.creators.put("bob", ["user:bob"])
    storage.creators.put("ann", ["user:ann", "group:ml", "*"])

    found = [storage.creators.find(name) for name in ("ann", "bob", "eve")]

    assert [("user:ann", "group:ml", "*"), ("user:bob",), ()] == found
