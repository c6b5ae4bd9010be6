"""Updates that an Aurora bridge started: its words about them, in their opaque data, for people."""

from __future__ import annotations

import json
from dataclasses import dataclass

from peloton.model.text import quote, shorten

START_PULSED, PULSE = "start_pulsed", "pulse"
"""Actions that are recorded in the opaque data of an update."""


@dataclass(frozen=True, slots=True)
class AuroraUpdate:
    update_id: str
    message: str = ""
    awaits_pulse: bool = False  # if it is paused

    def __str__(self) -> str:
        return f"Aurora's update {self.update_id}" + (f" {quote(self.message)}" if self.message else "")


def aurora_update(opaque_data: str) -> AuroraUpdate | None:
    """Return Aurora's words about an update; None for one that no bridge started."""
    if '"update_id"' not in opaque_data:
        return None
    try:
        found = json.loads(opaque_data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("update_id"), str):
        return None
    message, actions = found.get("start_job_update_msg"), found.get("update_actions")
    awaits = isinstance(actions, list) and START_PULSED in actions and PULSE not in actions
    return AuroraUpdate(shorten(found["update_id"]), message if isinstance(message, str) else "", awaits)
