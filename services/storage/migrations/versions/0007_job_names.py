"""Index of job names."""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_job_name", "job", ["name"], postgresql_using="hash")


def downgrade() -> None:
    op.drop_index("ix_job_name", "job")
