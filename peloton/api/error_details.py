"""Reasons of errors in the details of a gRPC status: ``google.rpc.ErrorInfo`` and ``google.rpc.RetryInfo``.

The trailing metadata of the call have them, under the key that gRPC defines for a ``google.rpc.Status``. Imports of
``google`` are inside functions: commands that meet no error start without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from peloton.model.times import NS_PER_S

if TYPE_CHECKING:
    from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo

KEY = "grpc-status-details-bin"
DOMAIN = "peloton"
Trailing = tuple[tuple[str, str | bytes], ...]
"""Trailing metadata of a call."""


@dataclass(frozen=True)
class Details:
    """Details of an error. ``reason`` is empty for an error of an older server, or of the gRPC library."""

    reason: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    retry_after_s: float | None = None


def encode(code: int, message: str, details: Details) -> bytes:
    """Return the ``google.rpc.Status`` of an error."""
    from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
    from google.rpc.status_pb2 import Status

    info = ErrorInfo(reason=details.reason, domain=DOMAIN, metadata=details.metadata)
    status = Status(code=code, message=message)
    status.details.add().Pack(info)
    if details.retry_after_s is not None:
        retry = RetryInfo()
        retry.retry_delay.FromNanoseconds(round(details.retry_after_s * NS_PER_S))
        status.details.add().Pack(retry)
    encoded: bytes = status.SerializeToString()
    return encoded


def list_messages(trailing: Iterable[tuple[str, str | bytes]] | None) -> list[ErrorInfo | RetryInfo]:
    """Return the ErrorInfo of Peloton and the RetryInfo in the trailing metadata of a call."""
    value = next((value for key, value in trailing or () if key == KEY), None)
    if not isinstance(value, bytes):
        return []
    from google.protobuf.message import DecodeError
    from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
    from google.rpc.status_pb2 import Status

    found: list[ErrorInfo | RetryInfo] = []
    try:
        for part in Status.FromString(value).details:
            info, retry = ErrorInfo(), RetryInfo()
            if part.Unpack(info) and info.domain == DOMAIN:
                found.append(info)
            elif part.Unpack(retry):
                found.append(retry)
    except DecodeError:
        return []
    return found


def list_texts(trailing: Trailing) -> list[str]:
    """Return the texts in the trailing metadata of a refused call."""
    found: list[str] = []

    def note(text: str) -> str:
        found.append(text)
        return text

    rewrite(trailing, note)
    return found


def rewrite(trailing: Trailing, change: Callable[[str], str]) -> Trailing:
    """Return the trailing metadata with all texts changed. Details that are not Peloton's are left out."""
    return tuple((key, _rewrite(value, change)) for key, value in trailing)


def _rewrite(value: str | bytes, change: Callable[[str], str]) -> str | bytes:
    if isinstance(value, str):
        return change(value)
    from google.protobuf.message import DecodeError
    from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
    from google.rpc.status_pb2 import Status

    try:
        status = Status.FromString(value)
    except DecodeError:
        return b""
    changed = Status(code=status.code, message=change(status.message))
    for part in status.details:
        info, retry = ErrorInfo(), RetryInfo()
        if part.Unpack(info) and info.domain == DOMAIN:
            texts = {key: change(text) for key, text in info.metadata.items()}
            changed.details.add().Pack(ErrorInfo(reason=info.reason, domain=DOMAIN, metadata=texts))
        elif part.Unpack(retry):
            changed.details.add().Pack(retry)
    encoded: bytes = changed.SerializeToString()
    return encoded


def details_of(trailing: Iterable[tuple[str, str | bytes]] | None) -> Details:
    """Return the details in the trailing metadata of a call."""
    reason, metadata, retry_after_s = "", dict[str, str](), None
    for message in list_messages(trailing):
        if hasattr(message, "retry_delay"):
            retry_after_s = message.retry_delay.ToNanoseconds() / NS_PER_S
        else:
            reason, metadata = message.reason, dict(message.metadata)
    return Details(reason, metadata, retry_after_s)


def reason_of(error: Any) -> str:
    """Return the reason of a refused call; empty when the answer has none."""
    return details_of(error.trailing_metadata()).reason
