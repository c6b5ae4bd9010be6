"""Time series of pools and clusters."""

import sqlalchemy as sa
from alembic import op

revision = "0021_from_0009"
down_revision = "0020_from_0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "history_sample",
        sa.Column("at_s", sa.BigInteger(), nullable=False),
        sa.Column("sample", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("at_s"),
    )
    op.create_table(
        "history_page",
        sa.Column("series", sa.Text(), nullable=False),
        sa.Column("step_s", sa.Integer(), nullable=False),
        sa.Column("start_s", sa.BigInteger(), nullable=False),
        sa.Column("page", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("series", "step_s", "start_s"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_history_page_age", "history_page", ["step_s", "start_s"])


def downgrade() -> None:
    op.drop_index("ix_history_page_age", "history_page")
    op.drop_table("history_page")
    op.drop_table("history_sample")
