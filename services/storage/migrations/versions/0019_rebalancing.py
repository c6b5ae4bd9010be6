"""Rebalancing of each cluster, and its moves."""

import sqlalchemy as sa
from alembic import op

revision = "0019_from_0009"
down_revision = "0018_from_0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "rebalance",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("goals", sa.Text(), nullable=False),
        sa.Column("moves_per_hour", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("move_count", sa.BigInteger(), nullable=False),
        sa.Column("progress", sa.Text(), nullable=False),
        sa.Column("started_ns", sa.BigInteger(), nullable=False),
        sa.Column("updated_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster"),
    )
    op.create_table(
        "rebalance_move",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("job_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("instance_id", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("goal", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("begun_ns", sa.BigInteger(), nullable=False),
        sa.Column("ended_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "seq"),
    )
    op.execute("insert into counter (name, value) values ('rebalance', 0)")


def downgrade() -> None:
    op.execute("delete from counter where name = 'rebalance'")
    op.drop_table("rebalance_move")
    op.drop_table("rebalance")
