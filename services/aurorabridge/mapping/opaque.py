"""Opaque data of updates: JSON that carries Aurora's words about an update through Peloton."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from peloton.model.aurora_update import PULSE, START_PULSED
from services.aurorabridge.mapping.update_spec import needs_pulse
from services.aurorabridge.method import Refusal
from services.aurorabridge.thrift import api

ROLLBACK = "rollback"


@dataclass(frozen=True)
class Opaque:
    update_id: str = ""
    actions: tuple[str, ...] = ()
    metadata: tuple[tuple[str, str], ...] = ()
    message: str = ""
    request: str = ""
    """Digest of the request that started the update: it recognises a repeated call, and is a field of this bridge."""

    @property
    def awaits_pulse(self) -> bool:
        """Return whether the update, if it is paused, is so until its first pulse."""
        return START_PULSED in self.actions and PULSE not in self.actions

    @property
    def is_rollback(self) -> bool:
        return ROLLBACK in self.actions

    def and_action(self, action: str) -> Opaque:
        return replace(self, actions=(*self.actions, action))

    def encode(self) -> str:
        fields = {
            "update_id": self.update_id,
            "update_actions": self.actions,
            "update_metadata": [{"key": key, "value": value} for key, value in self.metadata],
            "start_job_update_msg": self.message,
            "start_job_update_request": self.request,
        }
        given = {name: value for name, value in fields.items() if value}
        return json.dumps(given, ensure_ascii=False, separators=(",", ":"))

    def aurora_metadata(self) -> list[Any]:
        return [api.Metadata(key=key, value=value) for key, value in self.metadata]


def begin(update_id: str, request: Any, message: str, digest: str) -> Opaque:
    """Return the data of an update that a request starts. Raises Refusal."""
    made = Opaque(
        update_id,
        (START_PULSED,) if needs_pulse(request.settings) else (),
        metadata_pairs(request.metadata),
        message,
        digest,
    )
    try:
        made.encode().encode()
    except UnicodeEncodeError as error:
        raise Refusal(f"the metadata or the message of the update is not Unicode: {error}") from error
    return made


def decode(text: str) -> Opaque:
    """Return the opaque data of an update; empty for an update that no bridge started."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return Opaque()
    if not isinstance(found, dict):
        return Opaque()
    pairs = [one for one in _list(found, "update_metadata") if isinstance(one, dict)]
    return Opaque(
        update_id=_text(found, "update_id"),
        actions=tuple(str(action) for action in _list(found, "update_actions")),
        metadata=tuple((_text(pair, "key"), _text(pair, "value")) for pair in pairs),
        message=_text(found, "start_job_update_msg"),
        request=_text(found, "start_job_update_request"),
    )


def metadata_pairs(metadata: Iterable[Any] | None) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((one.key or "", one.value or "") for one in metadata or ()))


def _list(found: dict[str, Any], name: str) -> list[Any]:
    value = found.get(name)
    return value if isinstance(value, list) else []


def _text(found: dict[str, Any], name: str) -> str:
    value = found.get(name)
    return value if isinstance(value, str) else ""
