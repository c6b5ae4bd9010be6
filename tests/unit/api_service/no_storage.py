"""For tests of services that look at no job."""

from __future__ import annotations


class NoStorage:
    """Each repository of it is this object; nothing is stored, nothing is locked."""

    def __getattr__(self, repository: str) -> NoStorage:
        return self

    def locked(self) -> set[str]:
        return set()
