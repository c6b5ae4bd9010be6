"""Loans of the host pool mover, and the minimum of hosts per host pool."""

import sqlalchemy as sa
from alembic import op

revision = "0018_from_0009"
down_revision = "0017_from_0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("host_pool", sa.Column("minimum_hosts", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("host_in_pool", sa.Column("lent_by", sa.Text(), nullable=False, server_default=""))
    op.add_column("host_in_pool", sa.Column("at_most", sa.Integer(), nullable=False, server_default="0"))
    op.execute("insert into counter (name, value) values ('host pool mover', 0)")


def downgrade() -> None:
    op.execute("delete from counter where name = 'host pool mover'")
    op.drop_column("host_in_pool", "at_most")
    op.drop_column("host_in_pool", "lent_by")
    op.drop_column("host_pool", "minimum_hosts")
