"""The error vocabulary: every expected refusal names the object, the rule and the numbers in its message.

Its class says whose fault it is and whether the same call may be repeated; operations.md has the table for clients.
"""

from __future__ import annotations


class PelotonError(Exception):
    """Base of all expected errors, raised only as one of them. ``code`` is the name of a gRPC status code."""

    code: str

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidArgument(PelotonError):
    """The caller's: the call cannot be done as it is, however often it is repeated."""

    code = "INVALID_ARGUMENT"


class NotFound(PelotonError):
    """The caller's: what the call names does not exist."""

    code = "NOT_FOUND"


class AlreadyExists(PelotonError):
    """The caller's; or an answer was lost, and this is what a repeated call made."""

    code = "ALREADY_EXISTS"


class Aborted(PelotonError):
    """Nobody's: the call does not fit what there is at present. The caller looks again and decides anew."""

    code = "ABORTED"

    def __init__(self, message: str, status: str = "") -> None:
        """``status``: the gRPC status where clients of the original expect another one than ABORTED."""
        super().__init__(message)
        self.status = status or self.code


class Unavailable(PelotonError):
    """Ours, and it passes: the caller may repeat the call as it is."""

    code = "UNAVAILABLE"


class ResourceExhausted(PelotonError):
    """``retry_after_s``: when to try again what may be possible then; None for what is too large at any time, which is
    the caller's to change."""

    code = "RESOURCE_EXHAUSTED"

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class OutOfRange(PelotonError):
    """The caller's: a place in a stream that is not kept any more, or has not been yet."""

    code = "OUT_OF_RANGE"


class Unimplemented(PelotonError):
    """The caller's: there is no such thing here."""

    code = "UNIMPLEMENTED"


class Cancelled(PelotonError):
    """Somebody wanted it to end."""

    code = "CANCELLED"


class Internal(PelotonError):
    """Ours, and a bug: what another role has answered so. Nobody else raises it."""

    code = "INTERNAL"


ERRORS: dict[str, type[PelotonError]] = {
    e.code: e
    for e in (
        InvalidArgument,
        NotFound,
        AlreadyExists,
        Aborted,
        Unavailable,
        ResourceExhausted,
        OutOfRange,
        Unimplemented,
        Cancelled,
        Internal,
    )
}
