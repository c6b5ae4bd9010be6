"""Failed placements of pods: their number, and the end of the backoff."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("pod", sa.Column("vain_count", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("pod", sa.Column("held_until_ns", sa.BigInteger(), nullable=False, server_default="0"))


def downgrade() -> None:
    with op.batch_alter_table("pod") as pod:
        pod.drop_column("held_until_ns")
        pod.drop_column("vain_count")
