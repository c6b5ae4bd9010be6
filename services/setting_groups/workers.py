"""Settings of the workers."""

from __future__ import annotations

from dataclasses import dataclass

from services.setting_rules import one_of, setting


@dataclass(frozen=True)
class WorkersSettings:
    cached_workflows: int = setting(
        0,
        "worker",
        "workflows of each task queue that a worker keeps in memory; 0: as many as fit into half of its memory "
        "limit (its control group's, or the machine's), at least 1,000, of 256 KiB each. A wake-up of a job whose "
        "workflow is not kept replays its history, which costs the worker about ten times as much",
        low=0,
        high=10_000_000,
    )
    worker_promote: str = setting(
        "auto",
        "api worker resmgr",
        "who lets a [new version of the workers](operations.md#versions-of-the-workers) run more workflows: `auto`, "
        "the leading resource manager step by step; `manual`, a person by `peloton admin worker promote`. The same "
        "for `resmgr`, `worker` and `api`, which shows it",
        form=one_of("auto", "manual"),
    )
