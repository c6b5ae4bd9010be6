"""The error vocabulary: every expected refusal names the object, the rule and the numbers in its message."""

from __future__ import annotations


class PelotonError(Exception):
    """Base of all expected errors. ``code`` is the name of a gRPC status code."""

    code = "INTERNAL"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidArgument(PelotonError):
    code = "INVALID_ARGUMENT"


class NotFound(PelotonError):
    code = "NOT_FOUND"


class AlreadyExists(PelotonError):
    code = "ALREADY_EXISTS"


class Aborted(PelotonError):
    code = "ABORTED"


class Unavailable(PelotonError):
    """Nothing changed; the caller may try again."""

    code = "UNAVAILABLE"


class ResourceExhausted(PelotonError):
    """``retry_after_s``: when to try again what may be possible then; None for what is too large at any time."""

    code = "RESOURCE_EXHAUSTED"

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class OutOfRange(PelotonError):
    code = "OUT_OF_RANGE"


class Unimplemented(PelotonError):
    code = "UNIMPLEMENTED"


class Cancelled(PelotonError):
    code = "CANCELLED"


ERRORS: dict[str, type[PelotonError]] = {
    e.code: e
    for e in (
        PelotonError,
        InvalidArgument,
        NotFound,
        AlreadyExists,
        Aborted,
        Unavailable,
        ResourceExhausted,
        OutOfRange,
        Unimplemented,
        Cancelled,
    )
}
