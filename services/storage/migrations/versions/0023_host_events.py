"""Events of hosts."""

import sqlalchemy as sa
from alembic import op

revision = "0023_from_0009"
down_revision = "0022_from_0009"
branch_labels = None
depends_on = None

_LEFT = sa.text("kind = 'LEFT'")


def upgrade() -> None:
    op.create_table(
        "host_event",
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("hostname", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("at_ns", sa.BigInteger(), nullable=False),
        sa.Column("until_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
    )
    op.create_index("ix_host_event_host", "host_event", ["hostname", "seq"])
    op.create_index("ix_host_event_left", "host_event", ["hostname", "seq"], postgresql_where=_LEFT, sqlite_where=_LEFT)
    op.execute("INSERT INTO counter (name, value) VALUES ('host events', 0)")


def downgrade() -> None:
    op.execute("DELETE FROM counter WHERE name = 'host events'")
    op.drop_index("ix_host_event_left", "host_event")
    op.drop_index("ix_host_event_host", "host_event")
    op.drop_table("host_event")
