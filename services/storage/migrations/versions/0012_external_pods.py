"""External pods and their instances."""

import sqlalchemy as sa
from alembic import op

revision = "0012_from_0009"
down_revision = "0011_from_0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "external_pod",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("instance_id", sa.BigInteger(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "uid"),
    )
    op.create_index("ix_external_pod_job", "external_pod", ["job_id"])


def downgrade() -> None:
    op.drop_index("ix_external_pod_job", "external_pod")
    op.drop_table("external_pod")
