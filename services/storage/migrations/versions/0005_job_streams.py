"""Jobs created by a stream."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "job_stream",
        sa.Column("job_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("touched_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("job_id"),
    )


def downgrade() -> None:
    op.execute("delete from job_config_override where job_id in (select job_id from job_stream)")
    op.drop_table("job_stream")
