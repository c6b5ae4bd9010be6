"""Maintenance of hosts."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "host",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("hostname", sa.Text(), nullable=False),
        sa.Column("ip", sa.Text(), nullable=False),
        sa.Column("state", sa.SmallInteger(), nullable=False),
        sa.Column("goal", sa.SmallInteger(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("at_most", sa.BigInteger(), nullable=False),
        sa.Column("deadline_s", sa.BigInteger(), nullable=False),
        sa.Column("is_forced", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("requested_ns", sa.BigInteger(), nullable=False),
        sa.Column("drained_from_ns", sa.BigInteger(), nullable=False),
        sa.Column("changed_ns", sa.BigInteger(), nullable=False),
        sa.Column("progress", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "hostname"),
    )
    op.execute("insert into counter (name, value) values ('maintenance', 0)")


def downgrade() -> None:
    op.execute("delete from counter where name = 'maintenance'")
    op.drop_table("host")
