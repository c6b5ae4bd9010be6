"""Redaction of answers: what they say of jobs in pools that the caller may not read.

Jobs of other pools are named by explanations, plans, causes of evictions, and events of hosts. Their numbers stay.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

OTHER_JOB = "00000000-0000-0000-0000-000000000000"
"""Id that stands for all jobs of other pools."""
OTHER_NAME = "of another pool"
"""Name of this job: texts make ``job of another pool`` of it."""
JOB_NAMES = "jobNames"
"""Field of explanations: job id -> name."""
_NAME_FIELDS = ("jobName", "job_name")
_KEPT = frozenset(
    {
        "peloton.api.v0.job.JobConfig",
        "peloton.api.v0.task.TaskConfig",
        "peloton.api.v1alpha.job.stateless.JobSpec",
        "peloton.api.v1alpha.pod.PodSpec",
        *(f"peloton.api.{version}.peloton.{name}" for version in ("v0", "v1alpha") for name in ("Label", "OpaqueData")),
    }
)
"""Messages that are as a client has sent them, and are sent again after a change."""
_LEFT_OUT = frozenset({"peloton.api.v0.advice.ServiceMark"})
"""Elements of lists that tell nothing without their job."""
_ID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_IDS = re.compile(rf"\b{_ID}".encode())
_MENTIONS = re.compile(rf"(\b(?:job|pod) )?\b({_ID})((?:-\d+){{0,2}})")


def find_ids(content: bytes) -> set[str]:
    """Return the texts in an encoded message, or in another text, that may be ids of jobs."""
    return {found.decode() for found in _IDS.findall(content)}


def read_job_names(message: Message) -> Collection[str]:
    """Return the ids of the jobs that an answer names."""
    return set(getattr(message, JOB_NAMES, ()))


def redact(message: Message, hidden: Collection[str]) -> None:
    """Replace the hidden jobs in an answer by one job of another pool, and leave out what tells nothing without them.

    Texts contain the names that the answer itself has, in the form ``job NAME``.
    """
    names: Any = getattr(message, JOB_NAMES, {})
    known = [names[job_id].strip() for job_id in hidden if job_id in names]
    if known:
        for job_id in hidden:
            names.pop(job_id, None)
        names[OTHER_JOB] = OTHER_NAME
    _redact(message, hidden, _compile([name for name in known if name]))


def redact_text(text: str, hidden: Collection[str]) -> str:
    """Replace the ids of hidden jobs and of their pods in a text."""

    def replace(found: re.Match[str]) -> str:
        kind, job_id, rest = found.groups()
        if job_id not in hidden:
            return found[0]
        if len(found[0]) == len(text) and not kind:  # an id by itself
            return OTHER_JOB + rest
        return f"a {'pod' if rest else 'job'} {OTHER_NAME}"

    return _MENTIONS.sub(replace, text)


def _compile(names: Iterable[str]) -> re.Pattern[str] | None:
    longest_first = sorted(map(re.escape, names), key=len, reverse=True)
    return re.compile(rf"\bjob (?:{'|'.join(longest_first)})(?![\w-])") if longest_first else None


def _redact(message: Message, hidden: Collection[str], names: re.Pattern[str] | None) -> None:
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_STRING:
            _redact_strings(message, field, value, hidden, names)
        elif field.message_type is None or field.message_type.full_name in _KEPT:
            continue
        elif field.message_type.GetOptions().map_entry:
            _redact_map(field, value, hidden, names)
        elif field.is_repeated:
            if field.message_type.full_name in _LEFT_OUT:
                kept = [one for one in value if one.job_id not in hidden]
                del value[:]
                value.extend(kept)
            for one in value:
                _redact(one, hidden, names)
        else:
            _redact(value, hidden, names)
            if getattr(value, "value", "") == OTHER_JOB:
                _rename(message)


def _redact_strings(
    message: Message, field: FieldDescriptor, value: Any, hidden: Collection[str], names: re.Pattern[str] | None
) -> None:
    def show(text: str) -> str:
        shown = redact_text(text, hidden)
        return names.sub(f"a job {OTHER_NAME}", shown) if names is not None else shown

    if field.is_repeated:
        value[:] = [show(text) for text in value]
    elif (shown := show(value)) != value:
        setattr(message, field.name, shown)
        if shown == OTHER_JOB:
            _rename(message)


def _redact_map(field: FieldDescriptor, value: Any, hidden: Collection[str], names: re.Pattern[str] | None) -> None:
    assert field.message_type is not None
    of_values = field.message_type.fields_by_name["value"]
    for key in list(value):
        if of_values.message_type is not None:
            if of_values.message_type.full_name not in _KEPT:
                _redact(value[key], hidden, names)
        elif of_values.type == FieldDescriptor.TYPE_STRING:
            value[key] = redact_text(value[key], hidden)
        if key in hidden:
            del value[key]


def _rename(message: Message) -> None:
    """Replace the name next to the id of a hidden job."""
    for name in _NAME_FIELDS:
        if name in message.DESCRIPTOR.fields_by_name:
            setattr(message, name, OTHER_NAME)
