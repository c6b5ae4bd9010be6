"""Capacity of hosts in maintenance."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("host", sa.Column("capacity", sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    with op.batch_alter_table("host") as host:
        host.drop_column("capacity")
