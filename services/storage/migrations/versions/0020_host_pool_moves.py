"""Log of the host pool mover."""

import sqlalchemy as sa
from alembic import op

revision = "0020_from_0009"
down_revision = "0019_from_0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "host_pool_move",
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("destination", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("hostnames", sa.Text(), nullable=False),
        sa.Column("moved_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
    )


def downgrade() -> None:
    op.drop_table("host_pool_move")
