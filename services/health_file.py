"""Health file of a process, which writes it every few seconds. Supervisors and container probes read it.

A stopped process, or one whose interpreter is blocked, does not write, so that an old file means a hung process.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from peloton.files import read_text_file

CHECK_PERIOD_S, WRITE_PERIOD_S = 2.0, 10.0
"""Seconds between two looks at the health, which is written when it has changed, and between two writes without a
change.
"""
STALE_S = 30.0
"""Age of the file above which its process counts as hung."""


@dataclass(frozen=True)
class Health:
    """Health of a process. ``hung`` says why it is hung, or is empty; ``waits`` says what its roles wait for, or is
    empty when they are ready."""

    pid: int
    hung: str = ""
    waits: str = ""


def write(path: Path, health: Health) -> None:
    """Replace the file. Raises OSError."""
    new = path.with_name(f"{path.name}.{health.pid}")
    new.write_text(json.dumps(asdict(health)), encoding="utf-8")
    os.replace(new, path)


def read(path: Path, stale_s: float = STALE_S) -> Health | None:
    """Read the health. A file that is too old means a hung process; return None before the first write."""
    try:
        health = Health(**json.loads(read_text_file(path, "file of health")))
        age_s = time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return None
    if age_s > stale_s:
        return Health(health.pid, f"no heartbeat for {age_s:.0f} s (bound {stale_s:.0f} s)", health.waits)
    return health
