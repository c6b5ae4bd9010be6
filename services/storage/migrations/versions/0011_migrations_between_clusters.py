"""Bindings of jobs and pools to clusters, and migrations between clusters."""

import sqlalchemy as sa
from alembic import op

revision = "0011_from_0009"
down_revision = "0010_from_0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "cluster_binding",
        sa.Column("object_id", sa.Text(), nullable=False),
        sa.Column("binding", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("object_id"),
    )
    op.create_table(
        "migration",
        sa.Column("migration_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("object_id", sa.Text(), nullable=False),
        sa.Column("is_pool", sa.Boolean(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("bound_before", sa.Text(), nullable=False),
        sa.Column("progress", sa.Text(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("updated_ns", sa.BigInteger(), nullable=False),
        sa.Column("completed_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("migration_id"),
    )
    op.create_table(
        "migration_service",
        sa.Column("migration_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("job_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("moved", sa.Text(), nullable=False),
        sa.Column("left_count", sa.Integer(), nullable=False),
        sa.Column("waiting_for", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("migration_id", "job_id"),
    )
    op.execute("INSERT INTO counter (name, value) VALUES ('migration', 0)")


def downgrade() -> None:
    op.execute("DELETE FROM counter WHERE name = 'migration'")
    for table in ("migration_service", "migration", "cluster_binding"):
        op.drop_table(table)
