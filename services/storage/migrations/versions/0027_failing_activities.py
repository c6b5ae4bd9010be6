"""Reports of repeatedly failing workflow activities."""

import sqlalchemy as sa
from alembic import op

revision = "0027_from_0009"
down_revision = "0026_from_0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "activity_report",
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("told_ns", sa.BigInteger(), nullable=False),
        sa.Column("activity_count", sa.Integer(), nullable=False),
        sa.Column("activities", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("worker"),
    )


def downgrade() -> None:
    op.drop_table("activity_report")
