"""Assignment of daemon instances to hosts."""

import sqlalchemy as sa
from alembic import op

revision = "0016_from_0009"
down_revision = "0015_from_0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "daemon_host",
        sa.Column("job_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("instance_id", sa.BigInteger(), nullable=False),
        sa.Column("hostname", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("gone_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "instance_id"),
    )
    op.create_index("ix_daemon_host_name", "daemon_host", ["job_id", "hostname"])


def downgrade() -> None:
    op.drop_table("daemon_host")
