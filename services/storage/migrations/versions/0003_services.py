"""Services: updates, desired hosts, disruptions, and the log that watchers follow."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

UUID = sa.Uuid(as_uuid=False)
ADDED: tuple[tuple[str, sa.Column[object]], ...] = (
    ("job", sa.Column("strict_updates", sa.Boolean(), nullable=False, server_default=sa.false())),
    ("job", sa.Column("update_id", sa.Text(), nullable=False, server_default="")),
    ("job_config", sa.Column("overrides_from", sa.Integer(), nullable=False, server_default="1")),
    ("job_config", sa.Column("spec", sa.LargeBinary(), nullable=False, server_default=sa.text("''"))),
    ("pod", sa.Column("desired_host", sa.Text(), nullable=False, server_default="")),
)


def upgrade() -> None:
    for table, column in ADDED:
        op.add_column(table, column)
    op.execute("insert into counter (name, value) values ('watch_log', 0)")
    op.create_table(
        "job_name",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("job_id", UUID, nullable=False),
        sa.Column("updated_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", "job_id"),
    )
    op.create_table(
        "job_update",
        sa.Column("update_id", UUID, nullable=False),
        sa.Column("job_id", UUID, nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("prev_state", sa.Text(), nullable=False),
        sa.Column("config_version", sa.Integer(), nullable=False),
        sa.Column("prev_config_version", sa.Integer(), nullable=False),
        *(
            sa.Column(name, sa.Text(), nullable=False)
            for name in ("added", "updated", "removed", "current", "done", "failed", "opaque_data", "waiting_for")
        ),
        sa.Column("update_key", sa.Text(), nullable=False),
        sa.Column("request_digest", sa.Text(), nullable=False),
        sa.Column("pulsed_ns", sa.BigInteger(), nullable=False),
        sa.Column("awaits_pulse", sa.Boolean(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("updated_ns", sa.BigInteger(), nullable=False),
        sa.Column("completed_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("update_id"),
    )
    op.create_index("ix_job_update_job", "job_update", ["job_id"])
    op.create_table(
        "job_update_event",
        sa.Column("update_id", UUID, nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("time_ns", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("instances", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("update_id", "seq"),
    )
    op.create_table(
        "disruption",
        sa.Column("job_id", UUID, nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("time_ns", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.SmallInteger(), nullable=False),
        sa.Column("granted", sa.Boolean(), nullable=False),
        sa.Column("instances", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "seq"),
    )
    op.create_table(
        "watch_log",
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("job_id", UUID, nullable=False),
        sa.Column("instance_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
    )
    op.create_table(
        "watch_cancel",
        sa.Column("watch_id", sa.Text(), nullable=False),
        sa.Column("asked_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("watch_id"),
    )
    op.create_table("lockdown", sa.Column("component", sa.Text(), nullable=False), sa.PrimaryKeyConstraint("component"))


def downgrade() -> None:
    for table in ("lockdown", "watch_cancel", "watch_log", "disruption", "job_update_event", "job_update", "job_name"):
        op.drop_table(table)
    op.execute("delete from counter where name = 'watch_log'")
    for table, column in reversed(ADDED):
        with op.batch_alter_table(table) as batch:
            batch.drop_column(column.name)
