"""Pending wake-ups of job workflows."""

import sqlalchemy as sa
from alembic import op

revision = "0026_from_0009"
down_revision = "0025_from_0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "job_wake",
        sa.Column("job_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("noted_ns", sa.BigInteger(), nullable=False),
        sa.Column("due_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("job_id"),
    )
    op.create_index("ix_job_wake_due", "job_wake", ["due_ns", "job_id"])


def downgrade() -> None:
    op.drop_index("ix_job_wake_due", "job_wake")
    op.drop_table("job_wake")
