"""Agreements of channels and servers: the size of messages, how a busy server says when to retry, which code an error
has, and how to recognize gRPC's own words for a missing server."""

from __future__ import annotations

from typing import Any

MESSAGE_BYTES_MAX = 256 * 2**20
"""A job with a configuration for each of many instances is large."""

MESSAGE_SIZES = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
)
"""As options of a gRPC channel or server."""

RETRY_AFTER = "retry-after-ms"
"""Trailing metadata of RESOURCE_EXHAUSTED: nothing has been done, and the call may be repeated after so long."""

OWN_CODE = "peloton-code"
"""Trailing metadata of a call whose status is the one that clients of the original expect: the code of the error."""


def code_of(error: Any) -> str:
    """Return the name of the code of a refused call: that of the error, or else the status."""
    trailing = error.trailing_metadata() or ()
    return next((str(value) for key, value in trailing if key == OWN_CODE), error.code().name)


_NEVER_CONNECTED_WORDS = (
    "failed to connect",
    "errors resolving",
    "dns resolution",
    "domain name",
    "connections to all backends",
)
_CONNECTION_WORDS = (
    *_NEVER_CONNECTED_WORDS, "connection re", "connection aborted", "connection timed out", "socket closed", "recvmsg",
    "goaway", "endpoint", "ipv4:", "ipv6:",
)  # fmt: skip


def is_connection_failure(details: str) -> bool:
    """Whether these details of UNAVAILABLE are what the gRPC library itself says when no server answers, and not a
    server's own. Only the beginning counts: further on, a server may quote such words."""
    return details.lower().startswith(_CONNECTION_WORDS)


LOCKED_DOWN = "APIs are locked down"
"""In the refusal of a call by a lock-down: nothing has been done."""

IS_STORED = "is stored, but its workflow could not be started yet"
"""In the error for a job that was created while Temporal is away; the api keeps trying to start its workflow."""


def was_never_sent(details: str) -> bool:
    """Whether these details of UNAVAILABLE say that there was no connection to send the call on."""
    return details.lower().startswith(_NEVER_CONNECTED_WORDS)
