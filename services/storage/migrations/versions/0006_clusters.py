"""Several clusters: the cluster of each pod and host name."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("pod", sa.Column("cluster", sa.Text(), nullable=False, server_default=""))
    op.create_table(
        "cluster_host",
        sa.Column("hostname", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("hostname"),
    )
    # Databases served one cluster so far. One job at a time keeps each statement bounded.
    conn = op.get_bind()
    cluster = conn.execute(sa.text("select min(cluster) from framework")).scalar()
    if cluster is None:  # nothing has been launched yet
        return
    placed = sa.text("update pod set cluster = :cluster where job_id = :job_id and (host <> '' or desired_host <> '')")
    for job_id in conn.execute(sa.text("select job_id from job where state not in (4, 5, 6, 9)")).scalars().all():
        conn.execute(placed, {"cluster": cluster, "job_id": job_id})


def downgrade() -> None:
    op.drop_table("cluster_host")
    with op.batch_alter_table("pod") as pod:
        pod.drop_column("cluster")
