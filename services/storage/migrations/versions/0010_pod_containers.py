"""State of each container of pods that have several."""

import sqlalchemy as sa
from alembic import op

revision = "0010_from_0009"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "pod_containers",
        sa.Column("job_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("instance_id", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("containers", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "instance_id"),
    )


def downgrade() -> None:
    op.drop_table("pod_containers")
