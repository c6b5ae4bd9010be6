"""Removal of secret values from answers.

Mesos shows a task to authorized callers only. A minicluster has no authorization, and treats every caller as one who
may see tasks but not their secrets.
"""

from __future__ import annotations

from typing import Any


def without_secrets(message: Any) -> Any:
    """Return the message without the data of the Secrets in it; references stay."""
    if isinstance(message, list):
        return [without_secrets(item) for item in message]
    if not isinstance(message, dict):
        return message
    return {key: without_secrets(value) for key, value in message.items() if not (key == "value" and _is_data(value))}


def _is_data(value: object) -> bool:
    """Return whether this is a Secret.Value, the only message of that name with data."""
    return isinstance(value, dict) and "data" in value
