"""Errors inside responses of the v0 API, raised with a text: the original printed them and exited with 0."""

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

    ``texts`` has the text for each field: ``{id}`` is the id or path in the error, ``{message}`` its message,
    ``{count}`` the number of instances of the job and ``{valid}`` their range; ``names`` gives further values, and
    ``id`` for errors without one. Below ``error`` a field without a text is an error, too. With ``--json`` the response
    is printed first.
    """
    is_nested = "error" in response.DESCRIPTOR.fields_by_name
    holder: Message = getattr(response, "error") if is_nested else response  # noqa: B009
    for field, error in holder.ListFields():
        if field.name not in texts and not is_nested:
            continue
        if settings.output in ("json", "yaml"):
            print_for_programs(settings, response)
        if field.message_type is None:
            raise Failed(str(error))
        text = texts.get(field.name, f"{field.name}: {{message}}")
        raise Failed(text.format(**{**names, **values_of(error, str(names.get("id", "")))}).rstrip(": "))


def values_of(error: Message, default_id: str) -> dict[str, object]:
    ids = [getattr(error, name).value for name in ("id", "jobId", "path", "respoolID") if hasattr(error, name)]
    count = getattr(error, "instanceCount", 0)
    return {
        "id": next(filter(None, ids), default_id),
        "message": getattr(error, "message", ""),
        "count": f"{count} instance{'' if count == 1 else 's'}",
        "valid": f", 0 to {count - 1}" if count > 1 else ", 0" if count else "",
    }
