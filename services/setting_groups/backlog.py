"""Settings of the bounds of the backlog."""

from __future__ import annotations

from dataclasses import dataclass

from services.setting_rules import setting


@dataclass(frozen=True)
class BacklogSettings:
    jobs_paced: int = setting(
        40,
        "api worker",
        "number of unstarted jobs from which on calls that submit more are delayed, up to 5 s. See "
        "[back-pressure](operations.md#back-pressure)",
        low=1,
        high=1_000_000_000,
    )
    jobs_waiting_max: int = setting(
        10_000, "api worker", "calls that submit work are refused", low=1, high=1_000_000_000
    )
    jobs_active_max: int = setting(
        100_000,
        "api worker",
        "number of jobs that have not ended above which new jobs are rejected",
        low=1,
        high=1_000_000_000,
    )
    pods_active_max: int = setting(
        2_000_000,
        "api worker",
        "number of pods of jobs that have not ended above which new jobs are rejected",
        low=1,
        high=1_000_000_000,
    )
