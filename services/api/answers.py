"""Paged assembly of answers with many pods, so that an oversized answer is refused early."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from google.protobuf.message import Message

from peloton.errors import Reason, ResourceExhausted
from peloton.model.pod import PodRecord
from services.api.channels import ANSWER_BYTES_MAX

M = TypeVar("M", bound=Message)
PAGE = 1_000
"""Number of pods whose configurations are read at a time."""


def within_limit(pods: Sequence[PodRecord], infos_of: Callable[[list[PodRecord]], list[M]]) -> list[M]:
    """Convert pods with ``infos_of``, page by page. Raises ResourceExhausted when they exceed one answer."""
    infos: list[M] = []
    size_bytes = 0
    for at in range(0, len(pods), PAGE):
        page = infos_of(list(pods[at : at + PAGE]))
        infos += page
        size_bytes += sum(info.ByteSize() for info in page)
        if size_bytes > ANSWER_BYTES_MAX:
            raise ResourceExhausted(
                f"the answer has {len(pods)} pods, and the first {len(infos)} take {size_bytes} bytes already, the "
                f"limit is {ANSWER_BYTES_MAX}; ask for a smaller limit"
            ).because(Reason.ANSWER_TOO_LARGE, bytes=size_bytes, limit=ANSWER_BYTES_MAX)
    return infos
