"""Conventions of channels and servers: the size of messages, the retry delay of a busy server, the code of an error,
and the details by which the gRPC library reports a missing server."""

from __future__ import annotations

from typing import Any

from peloton.api.error_details import reason_of

MESSAGE_BYTES_MAX = 256 * 2**20
"""Maximum bytes of a message; a job with a configuration for each of many instances is large."""

MESSAGE_SIZES = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
)
"""Options of a gRPC channel or server."""

RETRY_AFTER = "retry-after-ms"
"""Trailing metadata of RESOURCE_EXHAUSTED: nothing was done, and the call may be repeated after this number of
milliseconds."""

OWN_CODE = "peloton-code"
"""Trailing metadata with the code of the error, for calls whose status is the one that clients of the original expect.
"""


def code_of(error: Any) -> str:
    """Return the name of the code of a refused call: the code of the error, or the status without one."""
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


def is_connection_failure(error: Any) -> bool:
    """Return whether an UNAVAILABLE is from the gRPC library, which found no server, and not from a server: it has no
    reason, and begins with the library's words. Servers up to 0.1 give no reasons.
    """
    return not reason_of(error) and (error.details() or "").lower().startswith(_CONNECTION_WORDS)


def was_never_sent(error: Any) -> bool:
    """Return whether an UNAVAILABLE says that there was no connection on which to send the call."""
    return not reason_of(error) and (error.details() or "").lower().startswith(_NEVER_CONNECTED_WORDS)
