"""Tables of the first release."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

ACTIVE = sa.text("state not in (4, 5, 6, 9)")


def upgrade() -> None:
    op.create_table(
        "counter",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.execute("insert into counter (name, value) values ('status_log', 0)")
    op.create_table(
        "framework",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("framework_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("cluster"),
    )
    op.create_table(
        "job",
        sa.Column("job_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("type", sa.SmallInteger(), nullable=False),
        sa.Column("owning_team", sa.Text(), nullable=False),
        sa.Column("respool_id", sa.Text(), nullable=False),
        sa.Column("instance_count", sa.Integer(), nullable=False),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("preemptible", sa.Boolean(), nullable=False),
        sa.Column("revocable", sa.Boolean(), nullable=False),
        sa.Column("maximum_running_instances", sa.BigInteger(), nullable=False),
        sa.Column("minimum_running_instances", sa.BigInteger(), nullable=False),
        sa.Column("max_running_time_s", sa.BigInteger(), nullable=False),
        sa.Column("maximum_unavailable_instances", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.SmallInteger(), nullable=False),
        sa.Column("goal", sa.SmallInteger(), nullable=False),
        sa.Column("config_version", sa.Integer(), nullable=False),
        sa.Column("state_version", sa.Integer(), nullable=False),
        sa.Column("desired_state_version", sa.Integer(), nullable=False),
        sa.Column("workflow_version", sa.Integer(), nullable=False),
        sa.Column("has_controller", sa.Boolean(), nullable=False),
        sa.Column("pod_counts", sa.Text(), nullable=False),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("search", sa.Text(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("started_ns", sa.BigInteger(), nullable=False),
        sa.Column("completed_ns", sa.BigInteger(), nullable=False),
        sa.Column("updated_ns", sa.BigInteger(), nullable=False),
        sa.Column("run_seconds", sa.Double(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("job_id"),
    )
    op.create_index("ix_job_active", "job", ["job_id"], postgresql_where=ACTIVE, sqlite_where=ACTIVE)
    op.create_index("ix_job_created", "job", ["created_ns"])
    op.create_table(
        "job_config",
        sa.Column("job_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.Column("config", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "version"),
    )
    op.create_table(
        "job_config_override",
        sa.Column("job_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("instance_id", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.Column("config", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "instance_id", "version"),
    )
    op.create_table(
        "lease",
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("expires_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("role"),
    )
    op.create_table(
        "pod",
        sa.Column("job_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("instance_id", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("desired_run_id", sa.BigInteger(), nullable=False),
        sa.Column("prev_run_id", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.SmallInteger(), nullable=False),
        sa.Column("goal", sa.SmallInteger(), nullable=False),
        sa.Column("config_version", sa.Integer(), nullable=False),
        sa.Column("desired_config_version", sa.Integer(), nullable=False),
        sa.Column("queue_seq", sa.BigInteger(), nullable=False),
        sa.Column("next_run", sa.SmallInteger(), nullable=False),
        sa.Column("due_ns", sa.BigInteger(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("ports", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("health", sa.SmallInteger(), nullable=False),
        sa.Column("initial_health", sa.SmallInteger(), nullable=False),
        sa.Column("failure_count", sa.Integer(), nullable=False),
        sa.Column("max_failures", sa.Integer(), nullable=False),
        sa.Column("started_ns", sa.BigInteger(), nullable=False),
        sa.Column("completed_ns", sa.BigInteger(), nullable=False),
        sa.Column("updated_ns", sa.BigInteger(), nullable=False),
        sa.Column("run_seconds", sa.Double(), nullable=False),
        sa.Column("termination", sa.SmallInteger(), nullable=False),
        sa.Column("exit_code", sa.BigInteger(), nullable=False),
        sa.Column("signal", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "instance_id"),
        postgresql_with={"fillfactor": 85},
        sqlite_with_rowid=False,
    )
    op.create_table(
        "pod_event",
        sa.Column("job_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("instance_id", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("desired_run_id", sa.BigInteger(), nullable=False),
        sa.Column("prev_run_id", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.SmallInteger(), nullable=False),
        sa.Column("goal", sa.SmallInteger(), nullable=False),
        sa.Column("config_version", sa.Integer(), nullable=False),
        sa.Column("desired_config_version", sa.Integer(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("health", sa.SmallInteger(), nullable=False),
        sa.Column("time_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "instance_id", "revision"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "respool",
        sa.Column("respool_id", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("config", sa.LargeBinary(), nullable=False),
        sa.Column("updated_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("respool_id"),
    )
    op.create_table(
        "status_log",
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("instance_id", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.SmallInteger(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
    )


def downgrade() -> None:
    op.drop_table("status_log")
    op.drop_table("respool")
    op.drop_table("pod_event")
    op.drop_table("pod")
    op.drop_table("lease")
    op.drop_table("job_config_override")
    op.drop_table("job_config")
    op.drop_table("job")
    op.drop_table("framework")
    op.drop_table("counter")
