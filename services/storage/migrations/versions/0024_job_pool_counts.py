"""Index-only counts of the jobs of pools."""

from alembic import op

revision = "0024_from_0009"
down_revision = "0023_from_0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _replace(["respool_id", "created_ns", "job_id", "state"])


def downgrade() -> None:
    _replace(["respool_id", "created_ns"])


def _replace(columns: list[str]) -> None:
    """Drop the old index before creating the new one: on PostgreSQL the reverse order deadlocks with waiting
    writers."""
    op.drop_index("ix_job_pool", "job")
    op.create_index("ix_job_pool", "job", columns)
