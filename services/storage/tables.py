"""Tables of storage. Enums are stored as their wire numbers, times as unix nanoseconds with 0 for unset; no text is
null.

No index covers a pod column that changes: PostgreSQL then updates pods in place (HOT), and pods are found through the
small job table and a range scan.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

import services.storage.audit.tables
import services.storage.daemons.tables
import services.storage.history.tables
import services.storage.hosts.tables
import services.storage.jobs.tables
import services.storage.moves.tables
import services.storage.retention.tables
import services.storage.updates.tables
import services.storage.volumes.tables  # noqa: F401 - more tables of the same metadata

_UUID: Any = sa.Uuid(as_uuid=False)
_TEXT: Any = sa.Text
_BIG: Any = sa.BigInteger
_SMALL: Any = sa.SmallInteger
_BLOB: Any = sa.LargeBinary
_FLOAT: Any = sa.Double

FINISHED_STATES = (4, 5, 6, 9)
"""Numbers of JOB_TERMINAL, fixed here because an index contains them."""
_ACTIVE = sa.text("state not in (4, 5, 6, 9)")
_HAS_ENDED = sa.text("completed_ns > 0")
OWNER_INDEXED_MAX = 200
"""Maximum length of indexed owners in characters: PostgreSQL limits index entries to 2.7 kB."""
IS_CREATED_BY_USER = "creator <> ''"
SHORT_OWNER = f"length(owning_team) <= {OWNER_INDEXED_MAX}"
NO_BATCH = "type <> 0"
_SHORT_OWNER, _NO_BATCH = sa.text(SHORT_OWNER), sa.text(NO_BATCH)
_ACTIVE_OF_USER = sa.text(f"{_ACTIVE.text} and {IS_CREATED_BY_USER}")


class Job(SQLModel, table=True):
    """Runtime of a job. ``search`` is its configuration as lower-case JSON, without instances."""

    __tablename__ = "job"
    __table_args__ = (
        sa.Index("ix_job_active", "job_id", postgresql_where=_ACTIVE, sqlite_where=_ACTIVE),
        sa.Index("ix_job_created", "created_ns"),
        sa.Index("ix_job_creator", "creator", postgresql_where=_ACTIVE_OF_USER, sqlite_where=_ACTIVE_OF_USER),
        sa.Index("ix_job_ended", "completed_ns", "job_id", postgresql_where=_HAS_ENDED, sqlite_where=_HAS_ENDED),
        sa.Index("ix_job_name", "name", postgresql_using="hash"),  # a hash takes names of any length
        # Indexes for paged listings of jobs.
        sa.Index("ix_job_pool", "respool_id", "created_ns", "job_id", "state"),  # covers counts
        sa.Index("ix_job_state", "state", "created_ns"),
        sa.Index("ix_job_owner", "owning_team", "created_ns", postgresql_where=_SHORT_OWNER, sqlite_where=_SHORT_OWNER),
        sa.Index("ix_job_type", "type", "created_ns", postgresql_where=_NO_BATCH, sqlite_where=_NO_BATCH),
    )
    job_id: str = Field(primary_key=True, sa_type=_UUID)
    name: str = Field(sa_type=_TEXT)
    type: int = Field(sa_type=_SMALL)
    owning_team: str = Field(sa_type=_TEXT)
    respool_id: str = Field(sa_type=_TEXT)
    instance_count: int
    priority: int = Field(sa_type=_BIG)
    preemptible: bool
    revocable: bool
    maximum_running_instances: int = Field(sa_type=_BIG)
    minimum_running_instances: int = Field(sa_type=_BIG)
    max_running_time_s: int = Field(sa_type=_BIG)
    maximum_unavailable_instances: int = Field(sa_type=_BIG)
    strict_updates: bool
    state: int = Field(sa_type=_SMALL)
    goal: int = Field(sa_type=_SMALL)
    config_version: int
    state_version: int
    desired_state_version: int
    workflow_version: int
    has_controller: bool
    pod_counts: str = Field(sa_type=_TEXT)  # JSON {number of state: pods}
    labels: str = Field(sa_type=_TEXT)  # JSON [[key, value]]
    search: str = Field(sa_type=_TEXT)
    created_ns: int = Field(sa_type=_BIG)
    started_ns: int = Field(sa_type=_BIG)
    completed_ns: int = Field(sa_type=_BIG)
    updated_ns: int = Field(sa_type=_BIG)
    run_seconds: float = Field(sa_type=_FLOAT)
    gang_requeue_count: int = Field(sa_column_kwargs={"server_default": "0"})
    gang_due_ns: int = Field(sa_type=_BIG, sa_column_kwargs={"server_default": "0"})
    revision: int = Field(sa_type=_BIG)
    update_id: str = Field(sa_type=_TEXT)
    creator: str = Field(default="", sa_type=_TEXT, sa_column_kwargs={"server_default": ""})


class JobConfigRow(SQLModel, table=True):
    """Version of a job's configuration without its instances; immutable.

    ``overrides_from`` is the oldest version whose overrides are still in force. ``spec`` is the spec sent by a client
    of v1alpha.
    """

    __tablename__ = "job_config"
    job_id: str = Field(primary_key=True, sa_type=_UUID)
    version: int = Field(primary_key=True)
    created_ns: int = Field(sa_type=_BIG)
    facts: str = Field(sa_type=_TEXT)  # JSON InstanceFacts of the default
    config: bytes = Field(sa_type=_BLOB)
    overrides_from: int
    spec: bytes = Field(sa_type=_BLOB)


class JobConfigOverride(SQLModel, table=True):
    """Override of one instance, in force from ``version`` on.

    It ends with a newer override, or with a configuration that drops all overrides (``overrides_from``). ``facts``
    describe the merged configuration.
    """

    __tablename__ = "job_config_override"
    job_id: str = Field(primary_key=True, sa_type=_UUID)
    instance_id: int = Field(primary_key=True, sa_type=_BIG)
    version: int = Field(primary_key=True)
    facts: str = Field(sa_type=_TEXT)
    config: bytes = Field(sa_type=_BLOB)


class JobStreamRow(SQLModel, table=True):
    """Job that is being created by a stream: its rows of ``job_config_override`` exist, the job does not.

    Calls that have the ``token`` can add rows; ``touched_ns`` is the time of the last addition.
    """

    __tablename__ = "job_stream"
    job_id: str = Field(primary_key=True, sa_type=_UUID)
    token: str = Field(sa_type=_TEXT)
    touched_ns: int = Field(sa_type=_BIG)


class Pod(SQLModel, table=True):
    """Runtime of an instance: its current run.

    ``next_run`` and ``due_ns`` are the reason and time of an ended pod's next run. ``queue_seq`` is the place in the
    queue, kept on eviction and failed launches; 0 without a place. ``vain_count`` counts failed placements in a row.
    ``held_until_ns`` ends the backoff of a PENDING pod; 0 without backoff.
    """

    __tablename__ = "pod"
    __table_args__ = {"sqlite_with_rowid": False, "postgresql_with": {"fillfactor": 85}}
    job_id: str = Field(primary_key=True, sa_type=_UUID)
    instance_id: int = Field(primary_key=True, sa_type=_BIG)
    run_id: int = Field(sa_type=_BIG)
    desired_run_id: int = Field(sa_type=_BIG)
    prev_run_id: int = Field(sa_type=_BIG)
    state: int = Field(sa_type=_SMALL)
    goal: int = Field(sa_type=_SMALL)
    config_version: int
    desired_config_version: int
    queue_seq: int = Field(sa_type=_BIG)
    vain_count: int = Field(sa_column_kwargs={"server_default": "0"})
    held_until_ns: int = Field(sa_type=_BIG, sa_column_kwargs={"server_default": "0"})
    next_run: int = Field(sa_type=_SMALL)
    due_ns: int = Field(sa_type=_BIG)
    host: str = Field(sa_type=_TEXT)
    desired_host: str = Field(sa_type=_TEXT)
    agent_id: str = Field(sa_type=_TEXT)
    cluster: str = Field(sa_type=_TEXT, sa_column_kwargs={"server_default": ""})  # of the last launch
    ports: str = Field(sa_type=_TEXT)  # JSON {name: number}, empty for none
    message: str = Field(sa_type=_TEXT)
    reason: str = Field(sa_type=_TEXT)
    health: int = Field(sa_type=_SMALL)
    initial_health: int = Field(sa_type=_SMALL)  # state at the start of a run
    failure_count: int
    max_failures: int
    started_ns: int = Field(sa_type=_BIG)
    completed_ns: int = Field(sa_type=_BIG)
    updated_ns: int = Field(sa_type=_BIG)
    run_seconds: float = Field(sa_type=_FLOAT)
    termination: int = Field(sa_type=_SMALL)  # 0 = none
    exit_code: int = Field(sa_type=_BIG)
    signal: str = Field(sa_type=_TEXT)
    revision: int = Field(sa_type=_BIG)


class PodEventRow(SQLModel, table=True):
    """State of a pod after the write of ``revision``."""

    __tablename__ = "pod_event"
    __table_args__ = {"sqlite_with_rowid": False}
    job_id: str = Field(primary_key=True, sa_type=_UUID)
    instance_id: int = Field(primary_key=True, sa_type=_BIG)
    revision: int = Field(primary_key=True, sa_type=_BIG)
    run_id: int = Field(sa_type=_BIG)
    desired_run_id: int = Field(sa_type=_BIG)
    prev_run_id: int = Field(sa_type=_BIG)
    state: int = Field(sa_type=_SMALL)
    goal: int = Field(sa_type=_SMALL)
    config_version: int
    desired_config_version: int
    host: str = Field(sa_type=_TEXT)
    agent_id: str = Field(sa_type=_TEXT)
    message: str = Field(sa_type=_TEXT)
    reason: str = Field(sa_type=_TEXT)
    health: int = Field(sa_type=_SMALL)
    time_ns: int = Field(sa_type=_BIG)


class StatusLog(SQLModel, table=True):
    """Ended runs on hosts, in the order of their commits."""

    __tablename__ = "status_log"
    seq: int = Field(primary_key=True, sa_type=_BIG, sa_column_kwargs={"autoincrement": False})
    job_id: str = Field(sa_type=_UUID)
    instance_id: int = Field(sa_type=_BIG)
    run_id: int = Field(sa_type=_BIG)
    state: int = Field(sa_type=_SMALL)


class JobName(SQLModel, table=True):
    """Names that services have or had; the rows outlive the jobs."""

    __tablename__ = "job_name"
    name: str = Field(primary_key=True, sa_type=_TEXT)
    job_id: str = Field(primary_key=True, sa_type=_UUID)
    updated_ns: int = Field(sa_type=_BIG)


class WatchLog(SQLModel, table=True):
    """Changes of services (``instance_id`` -1) and of their pods, in the order of their commits."""

    __tablename__ = "watch_log"
    seq: int = Field(primary_key=True, sa_type=_BIG, sa_column_kwargs={"autoincrement": False})
    job_id: str = Field(sa_type=_UUID)
    instance_id: int = Field(sa_type=_BIG)


class WatchCancel(SQLModel, table=True):
    """Requests to cancel a watch, kept until the api that serves it has read them."""

    __tablename__ = "watch_cancel"
    watch_id: str = Field(primary_key=True, sa_type=_TEXT)
    asked_ns: int = Field(sa_type=_BIG)


class Lockdown(SQLModel, table=True):
    """Component that an administrator has locked."""

    __tablename__ = "lockdown"
    component: str = Field(primary_key=True, sa_type=_TEXT)


class ActivityReport(SQLModel, table=True):
    """Repeatedly failing activities reported by a worker, as JSON: the first of ``activity_count``."""

    __tablename__ = "activity_report"
    worker: str = Field(primary_key=True, sa_type=_TEXT)
    told_ns: int = Field(sa_type=sa.BigInteger)
    activity_count: int
    activities: str = Field(sa_type=_TEXT)


class Process(SQLModel, table=True):
    """Process with a database, and those of its settings that all processes must agree on, as JSON."""

    __tablename__ = "process"
    process_id: str = Field(primary_key=True, sa_type=_TEXT)
    role: str = Field(sa_type=_TEXT)
    version: str = Field(sa_type=_TEXT)
    seen_ns: int = Field(sa_type=_BIG)
    settings: str = Field(sa_type=_TEXT)


class Creator(SQLModel, table=True):
    """User who has created jobs, and the subjects of quotas that it was then, as a JSON list."""

    __tablename__ = "creator"
    name: str = Field(primary_key=True, sa_type=_TEXT)
    subjects: str = Field(sa_type=_TEXT)


class EndedSession(SQLModel, table=True):
    """Session of the web pages that was ended before it expires. ``caller`` is a hash of the identity of its viewer."""

    __tablename__ = "ended_session"
    __table_args__ = (sa.Index("ix_ended_session_expiry", "expires_ns"),)
    caller: str = Field(primary_key=True, sa_type=_TEXT)
    session: str = Field(primary_key=True, sa_type=_TEXT)
    expires_ns: int = Field(sa_type=_BIG)


class Counter(SQLModel, table=True):
    """Numbers given out in the order of commits: a transaction that takes some locks the row.

    Migrations create the rows, except that of the published events.
    """

    __tablename__ = "counter"
    name: str = Field(primary_key=True, sa_type=_TEXT)
    value: int = Field(sa_type=_BIG)


class Respool(SQLModel, table=True):
    __tablename__ = "respool"
    respool_id: str = Field(primary_key=True, sa_type=_TEXT)
    spec: str = Field(sa_type=_TEXT)  # JSON PoolSpec; read by 0.1 only
    config: bytes = Field(sa_type=_BLOB)
    updated_ns: int = Field(sa_type=_BIG)


class Lease(SQLModel, table=True):
    __tablename__ = "lease"
    role: str = Field(primary_key=True, sa_type=_TEXT)
    owner: str = Field(sa_type=_TEXT)
    address: str = Field(sa_type=_TEXT)
    expires_s: float = Field(sa_type=_FLOAT)
    epoch: int = Field(default=0, sa_type=_BIG, sa_column_kwargs={"server_default": "0"})  # rises with each owner


class PodContainers(SQLModel, table=True):
    """State of the containers of the last run of a pod that has several."""

    __tablename__ = "pod_containers"
    job_id: str = Field(primary_key=True, sa_type=_UUID)
    instance_id: int = Field(primary_key=True, sa_type=_BIG)
    run_id: int = Field(sa_type=_BIG)
    containers: str = Field(sa_type=_TEXT)  # JSON


class ExternalPod(SQLModel, table=True):
    """External pod, and its assigned instance.

    ``name`` is the namespace and name; ``note`` is the reason for which the pod makes no progress, if only its cluster
    reports one.
    """

    __tablename__ = "external_pod"
    __table_args__ = (sa.Index("ix_external_pod_job", "job_id"),)
    cluster: str = Field(primary_key=True, sa_type=_TEXT)
    uid: str = Field(primary_key=True, sa_type=_TEXT)
    name: str = Field(sa_type=_TEXT)
    job_id: str = Field(sa_type=_UUID)
    instance_id: int = Field(sa_type=_BIG)
    note: str = Field(sa_type=_TEXT)


METADATA = SQLModel.metadata
AUDIT = METADATA.tables["audit"]
AUDIT_ANCHOR = METADATA.tables["audit_anchor"]
JOB = METADATA.tables["job"]
IS_ACTIVE = JOB.c.state.not_in([sa.literal_column(str(state)) for state in FINISHED_STATES])
"""Condition of jobs that have not ended. SQLite uses the index of active jobs only if its numbers are constants."""
JOB_CONFIG = METADATA.tables["job_config"]
JOB_LABEL = METADATA.tables["job_label"]
JOB_SECRET = METADATA.tables["job_secret"]
JOB_WAKE = METADATA.tables["job_wake"]
OVERRIDE = METADATA.tables["job_config_override"]
JOB_STREAM = METADATA.tables["job_stream"]
POD = METADATA.tables["pod"]
POD_CONTAINERS = METADATA.tables["pod_containers"]
POD_EVENT = METADATA.tables["pod_event"]
STATUS_LOG = METADATA.tables["status_log"]
JOB_NAME = METADATA.tables["job_name"]
UPDATE = METADATA.tables["job_update"]
UPDATE_EVENT = METADATA.tables["job_update_event"]
DISRUPTION = METADATA.tables["disruption"]
WATCH_LOG = METADATA.tables["watch_log"]
WATCH_CANCEL = METADATA.tables["watch_cancel"]
LOCKDOWN = METADATA.tables["lockdown"]
ACTIVITY_REPORT = METADATA.tables["activity_report"]
PROCESS = METADATA.tables["process"]
CREATOR = METADATA.tables["creator"]
ENDED_SESSION = METADATA.tables["ended_session"]
COUNTER = METADATA.tables["counter"]
RESPOOL = METADATA.tables["respool"]
FRAMEWORK = METADATA.tables["framework"]
CLUSTER_HOST = METADATA.tables["cluster_host"]
LEASE = METADATA.tables["lease"]
HOST = METADATA.tables["host"]
HOST_EVENT = METADATA.tables["host_event"]
HOST_POOL = METADATA.tables["host_pool"]
HOST_IN_POOL = METADATA.tables["host_in_pool"]
HOST_POOL_MOVE = METADATA.tables["host_pool_move"]
CLUSTER_BINDING = METADATA.tables["cluster_binding"]
MIGRATION = METADATA.tables["migration"]
MIGRATION_SERVICE = METADATA.tables["migration_service"]
MIGRATION_POOL = METADATA.tables["migration_pool"]
REBALANCE = METADATA.tables["rebalance"]
REBALANCE_MOVE = METADATA.tables["rebalance_move"]
EXTERNAL_POD = METADATA.tables["external_pod"]
VOLUME = METADATA.tables["volume"]
DAEMON_HOST = METADATA.tables["daemon_host"]
HISTORY_SAMPLE = METADATA.tables["history_sample"]
HISTORY_PAGE = METADATA.tables["history_page"]
RETENTION_PROGRESS = METADATA.tables["retention_progress"]
ARCHIVE_OBJECT = METADATA.tables["archive_object"]
PRUNED_JOB = METADATA.tables["pruned_job"]
