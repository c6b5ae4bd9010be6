"""Host pools and their hosts."""

import sqlalchemy as sa
from alembic import op

revision = "0015_from_0009"
down_revision = "0014_from_0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "host_pool",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("serves", sa.Text(), nullable=False),
        sa.Column("cpu_percent", sa.Integer(), nullable=False),
        sa.Column("memory_percent", sa.Integer(), nullable=False),
        sa.Column("disk_percent", sa.Integer(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "host_in_pool",
        sa.Column("hostname", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("desired_pool", sa.Text(), nullable=False),
        sa.Column("changed_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("hostname"),
    )
    op.execute("insert into counter (name, value) values ('host pools', 0)")


def downgrade() -> None:
    op.execute("delete from counter where name = 'host pools'")
    op.drop_table("host_in_pool")
    op.drop_table("host_pool")
