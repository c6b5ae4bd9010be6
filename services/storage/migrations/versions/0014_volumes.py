"""Persistent volumes."""

import sqlalchemy as sa
from alembic import op

revision = "0014_from_0009"
down_revision = "0013_from_0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "volume",
        sa.Column("volume_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("job_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("instance_id", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("respool_id", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("container_path", sa.Text(), nullable=False),
        sa.Column("size_mib", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.SmallInteger(), nullable=False),
        sa.Column("goal", sa.SmallInteger(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("changed_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("volume_id"),
    )
    op.create_index("ix_volume_job", "volume", ["job_id"])


def downgrade() -> None:
    op.drop_table("volume")
