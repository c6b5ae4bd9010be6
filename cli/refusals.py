"""Errors that the v0 API puts inside a response: found, worded, and raised (the original exited with 0)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cli.errors import Failed
from cli.output import print_for_programs
from cli.settings import Settings

if TYPE_CHECKING:
    from google.protobuf.message import Message


NO_INSTANCE = "job {id} has no such instance: it has {count}{valid}"


def raise_if_refused(settings: Settings, response: Message, texts: Mapping[str, str], **names: object) -> None:
    """Raise Failed for an error in ``response.error`` or, where there is no such field, in the response itself.

    ``texts`` words the error of each field: ``{id}`` is the id or path that it names, ``{message}`` its message,
    ``{count}`` how many instances the job has and ``{valid}`` which these are; ``names`` gives further words, and
    ``id`` for errors that carry none. Below ``error`` a field without a text is an error too. With ``--json`` the
    response is printed all the same.
    """
    has_error = "error" in response.DESCRIPTOR.fields_by_name
    holder: Message = getattr(response, "error") if has_error else response  # noqa: B009
    for field, error in holder.ListFields():
        if field.name not in texts and not has_error:
            continue
        if settings.output in ("json", "yaml"):
            print_response(settings, response)
        if field.message_type is None:
            raise Failed(str(error))
        text = texts.get(field.name, f"{field.name}: {{message}}")
        raise Failed(text.format(**{**names, **words_of(error, str(names.get("id", "")))}).rstrip(": "))


def print_response(settings: Settings, response: Message) -> None:
    print_for_programs(settings, response)


def words_of(error: Message, default_id: str) -> dict[str, object]:
    ids = [getattr(error, name).value for name in ("id", "jobId", "path", "respoolID") if hasattr(error, name)]
    count = getattr(error, "instanceCount", 0)
    return {
        "id": next(filter(None, ids), default_id),
        "message": getattr(error, "message", ""),
        "count": f"{count} instance{'' if count == 1 else 's'}",
        "valid": f", 0 to {count - 1}" if count > 1 else ", 0" if count else "",
    }
