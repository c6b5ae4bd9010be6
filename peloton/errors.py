"""Error classes. Each message names the object, the rule that was broken, and the numbers.

The class says who can fix the error and whether the same call may be retried; docs/operations.md has the table for
clients. The reason identifies the rule for programs; docs/errors.md lists all reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Self

METADATA_CHARS_MAX = 200
"""Maximum characters of a value in the metadata of a reason, which is sent in a header."""


class Reason(StrEnum):
    """Reasons of errors. A reason that clients have seen is never renamed; new ones may be added."""

    code: str
    meaning: str

    def __new__(cls, name: str, code: str, meaning: str) -> Self:
        """Create a reason. ``code`` is the usual code of its errors; ``meaning`` ends with the keys of its metadata."""
        reason = str.__new__(cls, name)
        reason._value_ = name
        reason.code, reason.meaning = code, meaning
        return reason

    INVALID_REQUEST = "INVALID_REQUEST", "INVALID_ARGUMENT", "the request breaks a rule that the text names"
    OBJECT_NOT_FOUND = "OBJECT_NOT_FOUND", "NOT_FOUND", "the named object does not exist"
    JOB_NOT_FOUND = "JOB_NOT_FOUND", "NOT_FOUND", "no job has this id or name; `job`"
    POD_NOT_FOUND = "POD_NOT_FOUND", "NOT_FOUND", "the job has no such pod; `pod`"
    POOL_NOT_FOUND = "POOL_NOT_FOUND", "NOT_FOUND", "no resource pool has this id or path; `pool`"
    HOST_NOT_FOUND = "HOST_NOT_FOUND", "NOT_FOUND", "no cluster has registered this host; `host`"
    HOST_POOL_NOT_FOUND = "HOST_POOL_NOT_FOUND", "NOT_FOUND", "no host pool has this name; `host_pool`"
    CLUSTER_NOT_FOUND = "CLUSTER_NOT_FOUND", "NOT_FOUND", "no cluster has this name; `cluster`"
    UPDATE_NOT_FOUND = "UPDATE_NOT_FOUND", "NOT_FOUND", "the job has no such update"
    VOLUME_NOT_FOUND = "VOLUME_NOT_FOUND", "NOT_FOUND", "no volume has this id; `volume`"
    SCHEDULE_NOT_FOUND = "SCHEDULE_NOT_FOUND", "NOT_FOUND", "no schedule has this name; `schedule`"
    OBJECT_EXISTS = "OBJECT_EXISTS", "ALREADY_EXISTS", "an object with this name or id exists"
    JOB_EXISTS = "JOB_EXISTS", "ALREADY_EXISTS", "a job with this id exists; `job`"
    HOST_POOL_EXISTS = "HOST_POOL_EXISTS", "ALREADY_EXISTS", "a host pool with this name exists; `host_pool`"
    SCHEDULE_EXISTS = "SCHEDULE_EXISTS", "ALREADY_EXISTS", "a schedule with this name exists; `schedule`"
    STATE_CONFLICT = "STATE_CONFLICT", "ABORTED", "the present state of the object forbids the change"
    VERSION_CONFLICT = (
        "VERSION_CONFLICT",
        "ABORTED",
        "the object has changed since it was read (INVALID_ARGUMENT of v0)",
    )
    SLA_VIOLATION = "SLA_VIOLATION", "ABORTED", "the SLA of the job forbids to take down more instances now"
    WATCH_OVERFLOW = (
        "WATCH_OVERFLOW",
        "ABORTED",
        "the watcher reads too slowly: resume after the last revision; `watch`",
    )
    TEMPORARILY_UNAVAILABLE = (
        "TEMPORARILY_UNAVAILABLE",
        "UNAVAILABLE",
        "a part of Peloton, or a dependency, does not answer",
    )
    LOCKED_DOWN = "LOCKED_DOWN", "UNAVAILABLE", "an administrator has locked these calls, and nothing was done; `kind`"
    JOB_NOT_STARTED = "JOB_NOT_STARTED", "UNAVAILABLE", "the job is stored, and its workflow is started later; `job`"
    LIMIT_REACHED = "LIMIT_REACHED", "RESOURCE_EXHAUSTED", "the request or its answer exceeds a limit"
    ANSWER_TOO_LARGE = (
        "ANSWER_TOO_LARGE",
        "RESOURCE_EXHAUSTED",
        "the answer exceeds the size of a message; `bytes`, `limit`",
    )
    MESSAGE_TOO_LARGE = (
        "MESSAGE_TOO_LARGE",
        "RESOURCE_EXHAUSTED",
        "a compressed message unpacks to too much; `bytes`, `limit`",
    )
    QUEUE_FULL = "QUEUE_FULL", "RESOURCE_EXHAUSTED", "too many jobs or pods are active, or wait to be started; `rule`"
    QUOTA_REACHED = (
        "QUOTA_REACHED",
        "RESOURCE_EXHAUSTED",
        "the user has reached a quota; `user`, `quota`, `limit`, `rule`",
    )
    OVERLOADED = "OVERLOADED", "RESOURCE_EXHAUSTED", "too many calls are in progress; `rule`"
    POSITION_NOT_KEPT = (
        "POSITION_NOT_KEPT",
        "OUT_OF_RANGE",
        "the position in a stream is not kept any more, or does not exist yet",
    )
    NOT_AUTHENTICATED = (
        "NOT_AUTHENTICATED",
        "UNAUTHENTICATED",
        "the call has no credentials where it needs some, or invalid or expired ones",
    )
    NOT_PERMITTED = (
        "NOT_PERMITTED",
        "PERMISSION_DENIED",
        "the caller lacks the role that the method needs; `caller`, `method`, `role`, `pool`",
    )
    NOT_OFFERED = "NOT_OFFERED", "UNIMPLEMENTED", "this function does not exist here"
    OPERATION_CANCELLED = "OPERATION_CANCELLED", "CANCELLED", "the caller or an operator cancelled the operation"
    INTERNAL_ERROR = "INTERNAL_ERROR", "INTERNAL", "a bug of Peloton: the log of the role has the stack"


class PelotonError(Exception):
    """Base class of all expected errors, which is never raised itself. ``code`` is the name of a gRPC status code."""

    code: str
    reason: str = Reason.INTERNAL_ERROR  # as text: another role may be newer
    metadata: Mapping[str, str] = MappingProxyType({})

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def because(self, reason: str, **metadata: object) -> Self:
        """Set a more specific reason than that of the class. ``metadata`` has the object, the rule and the numbers."""
        self.reason, self.metadata = reason, {key: str(value)[:METADATA_CHARS_MAX] for key, value in metadata.items()}
        return self


class InvalidArgument(PelotonError):
    """The call is invalid, and a retry does not help."""

    code = "INVALID_ARGUMENT"
    reason = Reason.INVALID_REQUEST


class InvalidSettings(InvalidArgument):
    """The settings of a process are invalid. The message has a line for each fault; the process exits with code 2."""


class NotFound(PelotonError):
    """The named object does not exist."""

    code = "NOT_FOUND"
    reason = Reason.OBJECT_NOT_FOUND


class AlreadyExists(PelotonError):
    """The object exists already, possibly because an earlier attempt succeeded and its answer was lost."""

    code = "ALREADY_EXISTS"
    reason = Reason.OBJECT_EXISTS


class Aborted(PelotonError):
    """The current state forbids the call. The caller has to read the state again and decide."""

    code = "ABORTED"
    reason = Reason.STATE_CONFLICT

    def __init__(self, message: str, status: str = "") -> None:
        """Set ``status``, the gRPC status, where clients of the original API expect another one than ABORTED."""
        super().__init__(message)
        self.status = status or self.code


class Unavailable(PelotonError):
    """Peloton or a dependency is temporarily unavailable: the caller may retry the call."""

    code = "UNAVAILABLE"
    reason = Reason.TEMPORARILY_UNAVAILABLE


class LeadershipLost(Unavailable):
    """Another process leads this role: nothing was written or sent, and this process ends."""


class ResourceExhausted(PelotonError):
    """A limit is reached. ``retry_after_s`` is the delay after which a retry may succeed; None if the request itself is
    too large."""

    code = "RESOURCE_EXHAUSTED"
    reason = Reason.LIMIT_REACHED

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class OutOfRange(PelotonError):
    """The position in a stream is no longer stored, or does not exist yet."""

    code = "OUT_OF_RANGE"
    reason = Reason.POSITION_NOT_KEPT


class Unauthenticated(PelotonError):
    """The call has no credentials where it needs some, or they are invalid or expired."""

    code = "UNAUTHENTICATED"
    reason = Reason.NOT_AUTHENTICATED


class PermissionDenied(PelotonError):
    """The caller is known, and may not make the call."""

    code = "PERMISSION_DENIED"
    reason = Reason.NOT_PERMITTED


class Unimplemented(PelotonError):
    """The function is not available in this installation."""

    code = "UNIMPLEMENTED"
    reason = Reason.NOT_OFFERED


class Cancelled(PelotonError):
    """The caller or an operator cancelled the operation."""

    code = "CANCELLED"
    reason = Reason.OPERATION_CANCELLED


class Internal(PelotonError):
    """Bug of Peloton. It is raised only for such an answer of another role."""

    code = "INTERNAL"
    reason = Reason.INTERNAL_ERROR


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
        Unauthenticated,
        PermissionDenied,
        Unimplemented,
        Cancelled,
        Internal,
    )
}
