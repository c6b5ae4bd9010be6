"""Number of workflows that a worker keeps in memory."""

from __future__ import annotations

import os
from pathlib import Path

from peloton.files import read_text_file

CACHED_MIN = 1_000
"""Workflows of each task queue that are kept even when memory is scarce: a signal to an evicted one replays its
history.
"""
WORKFLOW_BYTES = 256 << 10
"""Memory of one kept workflow of at most ``Policies.history_events_max`` events."""
CACHED_QUEUES = 2
"""Task queues with a large cache: the queues of batch jobs and of services."""
LIMIT_FILES = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Files with the memory limit of the process's control group, version 2 and 1."""


def compute_cached_max(setting: int, allowance_bytes: int | None = None) -> int:
    """Return the number of workflows of each task queue to keep: the setting, or by default as many as half of the
    memory holds that the process may use."""
    if setting > 0:
        return setting
    allowed = memory_allowance_bytes() if allowance_bytes is None else allowance_bytes
    return max(CACHED_MIN, allowed // 2 // CACHED_QUEUES // WORKFLOW_BYTES)


def memory_allowance_bytes() -> int:
    """Return the memory of this machine, or less where the process's control group has a limit."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = (_limit_bytes(Path(name)) for name in LIMIT_FILES)
    return min([machine, *(limit for limit in limits if limit)])


def _limit_bytes(file: Path) -> int:
    """Return the limit in the file; 0 when the file does not exist or sets no limit."""
    try:
        text = read_text_file(file, "limit of memory").strip()
    except OSError:
        return 0
    return int(text) if text.isdigit() else 0
