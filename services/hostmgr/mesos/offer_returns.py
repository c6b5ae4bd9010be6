"""Offers that Mesos is to have back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from services.hostmgr.mesos.codec import accept_call
from services.hostmgr.mesos.resources import Json


class OfferReturns:
    """Any thread adds, one sends."""

    def __init__(self) -> None:
        self._offer_ids: deque[str] = deque()  # claimed, and not known to have come back

    @property
    def are_due(self) -> bool:
        return bool(self._offer_ids)

    def add(self, offer_ids: Sequence[str]) -> None:
        self._offer_ids.extend(offer_ids)

    def clear(self) -> None:
        """With the subscription all offers have ended."""
        self._offer_ids.clear()

    def send(self, send_all: Callable[[Sequence[Json]], object]) -> None:
        """Raises what ``send_all`` does; then they are sent the next time."""
        offer_ids: list[str] = []
        with suppress(IndexError):
            while True:
                offer_ids.append(self._offer_ids.popleft())
        if offer_ids:
            try:
                send_all([accept_call(offer_ids, [])])
            except BaseException:
                self._offer_ids.extend(offer_ids)
                raise
