"""Backoff of gangs whose launch failed."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("job", sa.Column("gang_requeue_count", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("job", sa.Column("gang_due_ns", sa.BigInteger(), nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("job", "gang_due_ns")
    op.drop_column("job", "gang_requeue_count")
