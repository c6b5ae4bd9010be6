"""Settings of retention: how long records are kept, and where they are archived."""

from __future__ import annotations

from dataclasses import dataclass

from services.setting_rules import DAY_S, pattern, setting

LOCATION = pattern("/FOLDER, file:///FOLDER, s3://BUCKET/PREFIX, gs:// or az://", r"(/|(file|s3|gs|az)://)\S+")
YEARS = 3_660


@dataclass(frozen=True)
class RetentionSettings:
    retention_period_s: float = setting(
        600.0,
        "resmgr",
        "seconds between rounds that delete [old records](retention.md); 0: none are deleted",
        low=0,
        high=DAY_S,
    )
    retention_pod_events_days: int = setting(
        7,
        "resmgr",
        "days for which events of pods are kept after the end of their job, and those of earlier runs of pods of "
        "services after they happened; 0: as long as the job",
        low=0,
        high=YEARS,
    )
    retention_pods_days: int = setting(
        14,
        "resmgr",
        "days for which the pods of a batch job are kept after its end; 0: as long as the job",
        low=0,
        high=YEARS,
    )
    retention_jobs_days: int = setting(
        30, "resmgr", "days for which a batch job is kept after its end; 0: for ever", low=0, high=YEARS
    )
    retention_pruned_jobs_days: int = setting(
        90,
        "resmgr",
        "days for which a deleted job is remembered by its id, so that `peloton job get` says where it is archived; "
        "0: for ever",
        low=0,
        high=YEARS,
    )
    retention_host_events_days: int = setting(
        30, "resmgr", "days for which events of hosts are kept; 0: while they are few", low=0, high=YEARS
    )
    retention_history_days: int = setting(
        366, "resmgr", "days for which the hours of time series are kept; 0: for ever", low=0, high=YEARS
    )
    retention_audit_days: int = setting(
        90,
        "resmgr",
        "days for which entries of the [audit log](security.md#audit) are kept; 0: for ever",
        low=0,
        high=YEARS,
    )
    retention_watch_changes: int = setting(
        1_000_000,
        "resmgr",
        "changes of services and their pods that are kept for watchers, which resume after the last one that they saw",
        low=1_000,
        high=100_000_000,
    )
    archive: str = setting(
        "",
        "resmgr cli",
        "folder or S3-compatible store to which records are [archived](retention.md#the-archive) before their "
        "deletion; empty: they are deleted without. Keys of the store come from its own variables, such as "
        "`AWS_ACCESS_KEY_ID`",
        form=LOCATION,
    )
