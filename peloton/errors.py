"""Error classes: the message of every expected refusal names the object, the rule and the numbers.

The class says who can fix the error and whether the same call may be repeated; operations.md has the table for clients.
"""

from __future__ import annotations


class PelotonError(Exception):
    """Base of all expected errors, never raised itself. ``code`` is the name of a gRPC status code."""

    code: str

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidArgument(PelotonError):
    """Error of the caller: the call is invalid, and repeating it does not help."""

    code = "INVALID_ARGUMENT"


class InvalidSettings(InvalidArgument):
    """Settings of a process that break a rule. The message has a line for each fault; the process ends with code 2."""


class NotFound(PelotonError):
    """Error of the caller: the named object does not exist."""

    code = "NOT_FOUND"


class AlreadyExists(PelotonError):
    """Error of the caller, or the answer to a repeated call whose first answer was lost."""

    code = "ALREADY_EXISTS"


class Aborted(PelotonError):
    """Conflict with the current state, an error of neither side. The caller has to read the state again and decide."""

    code = "ABORTED"

    def __init__(self, message: str, status: str = "") -> None:
        """Set ``status``, the gRPC status, where clients of the original API expect another one than ABORTED."""
        super().__init__(message)
        self.status = status or self.code


class Unavailable(PelotonError):
    """Temporary error of Peloton: the caller may repeat the same call."""

    code = "UNAVAILABLE"


class ResourceExhausted(PelotonError):
    """A limit is reached. ``retry_after_s``: seconds until a repetition may succeed; None for a request that is always
    too large, which the caller has to change."""

    code = "RESOURCE_EXHAUSTED"

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class OutOfRange(PelotonError):
    """Error of the caller: a position in a stream that is no longer kept, or does not exist yet."""

    code = "OUT_OF_RANGE"


class Unimplemented(PelotonError):
    """Error of the caller: the function does not exist here."""

    code = "UNIMPLEMENTED"


class Cancelled(PelotonError):
    """The caller or an operator cancelled the operation."""

    code = "CANCELLED"


class Internal(PelotonError):
    """Bug of Peloton, as the answer of another role. It is raised only for such answers."""

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
