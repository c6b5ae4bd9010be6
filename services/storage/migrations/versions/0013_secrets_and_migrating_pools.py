"""Data of jobs' secrets, and the pools of migrations."""

import sqlalchemy as sa
from alembic import op

revision = "0013_from_0009"
down_revision = "0012_from_0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "job_secret",
        sa.Column("job_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("secret_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "secret_id"),
    )
    op.create_table(
        "migration_pool",
        sa.Column("migration_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("pool_id", sa.Text(), nullable=False),
        sa.Column("bound_before", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("migration_id", "pool_id"),
    )


def downgrade() -> None:
    op.drop_table("migration_pool")
    op.drop_table("job_secret")
