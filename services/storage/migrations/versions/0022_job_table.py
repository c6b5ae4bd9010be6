"""Indexes for paged listings of jobs by pool, state, owner and type."""

import sqlalchemy as sa
from alembic import op

revision = "0022_from_0009"
down_revision = "0021_from_0009"
branch_labels = None
depends_on = None

_SHORT_OWNER = sa.text("length(owning_team) <= 200")
_NO_BATCH = sa.text("type <> 0")


def upgrade() -> None:
    op.create_index("ix_job_pool", "job", ["respool_id", "created_ns"])
    op.create_index("ix_job_state", "job", ["state", "created_ns"])
    op.create_index(
        "ix_job_owner", "job", ["owning_team", "created_ns"], postgresql_where=_SHORT_OWNER, sqlite_where=_SHORT_OWNER
    )
    op.create_index("ix_job_type", "job", ["type", "created_ns"], postgresql_where=_NO_BATCH, sqlite_where=_NO_BATCH)


def downgrade() -> None:
    for index in ("ix_job_type", "ix_job_owner", "ix_job_state", "ix_job_pool"):
        op.drop_index(index, "job")
