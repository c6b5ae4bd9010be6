"""pools are read from their configuration: rows may come without the text of the spec, which nothing reads any more"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("respool") as respool:
        respool.alter_column("spec", existing_type=sa.Text(), existing_nullable=False, server_default="")


def downgrade() -> None:
    with op.batch_alter_table("respool") as respool:
        respool.alter_column("spec", existing_type=sa.Text(), existing_nullable=False, server_default=None)
