"""Retention as the settings of the process describe it."""

from __future__ import annotations

from peloton.lifecycle.retention import (
    AUDIT,
    HISTORY,
    HOST_EVENTS,
    JOBS,
    POD_EVENTS,
    PODS,
    PRUNED_JOBS,
    SERVICE_NAMES,
)
from services.retention.archive import open_archive
from services.retention.runner import Retention, RetentionPolicy
from services.retention.servicer import RetentionService
from services.settings import Settings
from services.storage.retention.sizes import Sizes
from services.storage.storage import Storage


def policy_of(settings: Settings) -> RetentionPolicy:
    days = {
        POD_EVENTS: settings.retention_pod_events_days,
        PODS: settings.retention_pods_days,
        JOBS: settings.retention_jobs_days,
        PRUNED_JOBS: settings.retention_pruned_jobs_days,
        SERVICE_NAMES: settings.retention_jobs_days,
        HOST_EVENTS: settings.retention_host_events_days,
        HISTORY: settings.retention_history_days,
        AUDIT: settings.retention_audit_days,
    }
    return RetentionPolicy(settings.retention_period_s, days, settings.retention_watch_changes)


def open_retention(storage: Storage, settings: Settings) -> Retention:
    """Open retention for the leader of the resource manager. Raises InvalidArgument, and Unimplemented without the
    extra that the archive needs."""
    return Retention(storage, policy_of(settings), open_archive(settings))


def open_service(retention: Retention, storage: Storage, settings: Settings) -> RetentionService:
    return RetentionService(retention, Sizes(storage.db), settings.archive)
