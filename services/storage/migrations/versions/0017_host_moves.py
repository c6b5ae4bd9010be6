"""Moves of hosts to another host pool."""

import sqlalchemy as sa
from alembic import op

revision = "0017_from_0009"
down_revision = "0016_from_0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("host", sa.Column("to_pool", sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("host", "to_pool")
