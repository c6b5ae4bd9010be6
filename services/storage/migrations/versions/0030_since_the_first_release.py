"""Tables, columns and indexes added since release 0.1.

A database of a version in between, of which there is no release, has a part of them.
"""

from alembic import op

from services.storage.migrations import job_labels
from services.storage.migrations import operations as do
from services.storage.migrations.operations import BIG, BIG_ZERO, BLOB, BOOL, INT, NO_TEXT, SEQ, SMALL, TEXT, UUID, ZERO

revision = "0036_from_0009"
down_revision = "0009"
branch_labels = None
depends_on = None

TABLES = (
    do.table("activity_report", "worker", worker=TEXT, told_ns=BIG, activity_count=INT, activities=TEXT),
    do.table("archive_object", "object_id", object_id=SEQ, name=TEXT, written_ns=BIG),
    do.table(
        "audit",
        "seq",
        seq=SEQ,
        at_ns=BIG,
        writer=TEXT,
        number=BIG,
        method=TEXT,
        result=TEXT,
        caller=TEXT,
        kind=TEXT,
        issuer=TEXT,
        via=TEXT,
        token_id=TEXT,
        peer=TEXT,
        object=TEXT,
        reason=TEXT,
        digest=TEXT,
        hash=TEXT,
    ),
    do.table("audit_anchor", "seq", seq=SEQ, hash=TEXT),
    do.table("cluster_binding", "object_id", object_id=TEXT, binding=TEXT),
    do.table("creator", "name", name=TEXT, subjects=TEXT),
    do.table(
        "daemon_host", "job_id instance_id", job_id=UUID, instance_id=BIG, hostname=TEXT, cluster=TEXT, gone_ns=BIG
    ),
    do.table("ended_session", "caller session", caller=TEXT, session=TEXT, expires_ns=BIG),
    do.table("external_pod", "cluster uid", cluster=TEXT, uid=TEXT, name=TEXT, job_id=UUID, instance_id=BIG, note=TEXT),
    do.table(
        "history_page", "series step_s start_s", do.WITHOUT_ROWID, series=TEXT, step_s=INT, start_s=BIG, page=BLOB
    ),
    do.table("history_sample", "at_s", at_s=BIG, sample=BLOB),
    do.table("host_event", "seq", seq=SEQ, hostname=TEXT, cluster=TEXT, kind=TEXT, text=TEXT, at_ns=BIG, until_ns=BIG),
    do.table("host_in_pool", "hostname", hostname=TEXT, pool=TEXT, desired_pool=TEXT, changed_ns=BIG),
    do.table(
        "host_pool",
        "name",
        name=TEXT,
        serves=TEXT,
        cpu_percent=INT,
        memory_percent=INT,
        disk_percent=INT,
        created_ns=BIG,
    ),
    do.table(
        "host_pool_move",
        "seq",
        seq=BIG,
        source=TEXT,
        destination=TEXT,
        rule=TEXT,
        reason=TEXT,
        hostnames=TEXT,
        moved_ns=BIG,
    ),
    do.table("job_label", "label created_ns job_id", do.WITHOUT_ROWID, label=TEXT, created_ns=BIG, job_id=UUID),
    do.table("job_secret", "job_id secret_id", job_id=UUID, secret_id=UUID, revision=INT, data=BLOB),
    do.table("job_wake", "job_id", job_id=UUID, noted_ns=BIG, due_ns=BIG),
    do.table(
        "migration",
        "migration_id",
        migration_id=UUID,
        seq=BIG,
        object_id=TEXT,
        is_pool=BOOL,
        name=TEXT,
        spec=TEXT,
        state=TEXT,
        bound_before=TEXT,
        progress=TEXT,
        created_ns=BIG,
        updated_ns=BIG,
        completed_ns=BIG,
    ),
    do.table("migration_pool", "migration_id pool_id", migration_id=UUID, pool_id=TEXT, bound_before=TEXT),
    do.table(
        "migration_service",
        "migration_id job_id",
        migration_id=UUID,
        job_id=UUID,
        name=TEXT,
        state=TEXT,
        moved=TEXT,
        left_count=INT,
        waiting_for=TEXT,
    ),
    do.table("pod_containers", "job_id instance_id", job_id=UUID, instance_id=BIG, run_id=BIG, containers=TEXT),
    do.table("process", "process_id", process_id=TEXT, role=TEXT, version=TEXT, seen_ns=BIG, settings=TEXT),
    do.table("pruned_job", "job_id", do.WITHOUT_ROWID, job_id=UUID, object_id=BIG, pruned_ns=BIG),
    do.table(
        "rebalance",
        "cluster",
        cluster=TEXT,
        goals=TEXT,
        moves_per_hour=INT,
        state=TEXT,
        move_count=BIG,
        progress=TEXT,
        started_ns=BIG,
        updated_ns=BIG,
    ),
    do.table(
        "rebalance_move",
        "cluster seq",
        cluster=TEXT,
        seq=BIG,
        job_id=UUID,
        instance_id=BIG,
        run_id=BIG,
        source=TEXT,
        target=TEXT,
        goal=TEXT,
        reason=TEXT,
        state=TEXT,
        begun_ns=BIG,
        ended_ns=BIG,
    ),
    do.table(
        "retention_progress",
        "name",
        name=TEXT,
        ended_ns=BIG,
        job_id=TEXT,
        instance_id=BIG,
        deleted_count=BIG,
        archived_bytes=BIG,
        ran_ns=BIG,
        note=TEXT,
    ),
    do.table(
        "volume",
        "volume_id",
        volume_id=UUID,
        job_id=UUID,
        instance_id=BIG,
        run_id=BIG,
        respool_id=TEXT,
        cluster=TEXT,
        host=TEXT,
        container_path=TEXT,
        size_mib=BIG,
        state=SMALL,
        goal=SMALL,
        note=TEXT,
        created_ns=BIG,
        changed_ns=BIG,
    ),
)
COLUMNS = {
    "cluster_host": {"address": NO_TEXT},
    "host": {"to_pool": NO_TEXT},
    "host_in_pool": {"lent_by": NO_TEXT, "at_most": ZERO},
    "host_pool": {"minimum_hosts": ZERO},
    "job": {"creator": NO_TEXT},
    "job_secret": {"holder": NO_TEXT},
    "lease": {"epoch": BIG_ZERO},
    "job_update_event": {"person": NO_TEXT},
    "job_update": {"progressed_ns": BIG_ZERO, "stalled_ns": BIG_ZERO, "stall_cause": NO_TEXT},
}
COUNTERS = "audit", "migration", "host pools", "host pool mover", "rebalance", "host events", "archive objects"


def upgrade() -> None:
    do.create_tables(TABLES)
    for table, columns in COLUMNS.items():
        do.add_columns(table, **columns)
    _create_indexes()
    do.add_counters(*COUNTERS)
    job_labels.create(op.get_bind())


def _create_indexes() -> None:
    do.create_index("ix_audit_time", "audit", "at_ns")
    do.create_index("ix_daemon_host_name", "daemon_host", "job_id hostname")
    do.create_index("ix_ended_session_expiry", "ended_session", "expires_ns")
    do.create_index("ix_external_pod_job", "external_pod", "job_id")
    do.create_index("ix_history_page_age", "history_page", "step_s start_s")
    do.create_index("ix_host_event_host", "host_event", "hostname seq")
    do.create_index("ix_host_event_left", "host_event", "hostname seq", where="kind = 'LEFT'")
    kinds = "kind in ('CORDONED', 'UNCORDONED', 'RESERVED', 'GIVEN_BACK')"
    do.create_index("ix_host_event_open", "host_event", "cluster hostname kind seq", where=kinds)
    of_user = "state not in (4, 5, 6, 9) and creator <> ''"
    do.create_index("ix_job_creator", "job", "creator", where=of_user)
    do.create_index("ix_job_ended", "job", "completed_ns job_id", where="completed_ns > 0")
    do.create_index("ix_job_owner", "job", "owning_team created_ns", where="length(owning_team) <= 200")
    do.create_index("ix_job_state", "job", "state created_ns")
    do.create_index("ix_job_type", "job", "type created_ns", where="type <> 0")
    # An older form is dropped before the new one is created: on PostgreSQL the reverse order deadlocks with writers.
    op.drop_index("ix_job_pool", "job", if_exists=True)
    do.create_index("ix_job_pool", "job", "respool_id created_ns job_id state")
    do.create_index("ix_job_wake_due", "job_wake", "due_ns job_id")
    do.create_index("ix_pruned_job_age", "pruned_job", "pruned_ns")
    do.create_index("ix_volume_job", "volume", "job_id")


def downgrade() -> None:
    job_labels.drop(op.get_bind())
    for name in ("ix_job_creator", "ix_job_ended", "ix_job_owner", "ix_job_pool", "ix_job_state", "ix_job_type"):
        op.drop_index(name, "job")
    do.drop_tables(TABLES)
    for table in ("cluster_host", "host", "job", "job_update", "job_update_event"):
        do.drop_columns(table, *COLUMNS[table])
    do.drop_counters(*COUNTERS)
