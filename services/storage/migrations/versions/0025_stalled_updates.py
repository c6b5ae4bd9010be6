"""Progress deadlines of updates."""

import sqlalchemy as sa
from alembic import op

revision = "0025_from_0009"
down_revision = "0024_from_0009"
branch_labels = None
depends_on = None

_TIMES, _CAUSE = ("progressed_ns", "stalled_ns"), "stall_cause"


def upgrade() -> None:
    for name in _TIMES:
        op.add_column("job_update", sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("job_update", sa.Column(_CAUSE, sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    with op.batch_alter_table("job_update") as table:
        for name in (*_TIMES, _CAUSE):
            table.drop_column(name)
