"""Answers without the values of secrets. Mesos shows a task to callers whom its authorization allows to see it; a
minicluster has no authorization, and takes every caller for one who may see the task but not its secrets."""

from __future__ import annotations

from typing import Any


def without_secrets(message: Any) -> Any:
    """Return the message without the data of each Secret in it, wherever it is; references stay."""
    if isinstance(message, list):
        return [without_secrets(item) for item in message]
    if not isinstance(message, dict):
        return message
    return {key: without_secrets(value) for key, value in message.items() if not (key == "value" and _is_data(value))}


def _is_data(value: object) -> bool:
    """Tell whether this is a Secret.Value, the only message called so with data."""
    return isinstance(value, dict) and "data" in value
