"""Storage for tests of services that read no job."""

from __future__ import annotations


class NoStorage:
    """A storage whose repositories are all this object; nothing is stored, nothing is locked."""

    def __getattr__(self, repository: str) -> NoStorage:
        return self

    def read_locked(self) -> set[str]:
        return set()
