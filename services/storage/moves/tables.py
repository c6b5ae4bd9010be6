"""Tables of migrations and rebalancing; ``services/storage/tables.py`` has the other tables and lists the names of
all."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

_UUID: Any = sa.Uuid(as_uuid=False)
_TEXT: Any = sa.Text
_BIG: Any = sa.BigInteger


class ClusterBinding(SQLModel, table=True):
    """Binding of a job to a cluster, or of a pool and its jobs without own bindings; see ``lifecycle.migration``."""

    __tablename__ = "cluster_binding"
    object_id: str = Field(primary_key=True, sa_type=_TEXT)
    binding: str = Field(sa_type=_TEXT)


class MigrationRow(SQLModel, table=True):
    """Migration of a job or a pool to another cluster; ``seq`` is the order of the requests."""

    __tablename__ = "migration"
    migration_id: str = Field(primary_key=True, sa_type=_UUID)
    seq: int = Field(sa_type=_BIG)
    object_id: str = Field(sa_type=_TEXT)
    is_pool: bool
    name: str = Field(sa_type=_TEXT)
    spec: str = Field(sa_type=_TEXT)  # JSON MigrationSpec
    state: str = Field(sa_type=_TEXT)
    bound_before: str = Field(sa_type=_TEXT)
    progress: str = Field(sa_type=_TEXT)  # JSON MigrationProgress
    created_ns: int = Field(sa_type=_BIG)
    updated_ns: int = Field(sa_type=_BIG)
    completed_ns: int = Field(sa_type=_BIG)


class MigrationService(SQLModel, table=True):
    """Service of a migration. ``moved``: instances taken down by it, as ranges ``0-4,7``."""

    __tablename__ = "migration_service"
    migration_id: str = Field(primary_key=True, sa_type=_UUID)
    job_id: str = Field(primary_key=True, sa_type=_UUID)
    name: str = Field(sa_type=_TEXT)
    state: str = Field(sa_type=_TEXT)
    moved: str = Field(sa_type=_TEXT)
    left_count: int
    waiting_for: str = Field(sa_type=_TEXT)


class MigrationPool(SQLModel, table=True):
    """Pool whose jobs a migration moves: the requested one, or one of its subtree."""

    __tablename__ = "migration_pool"
    migration_id: str = Field(primary_key=True, sa_type=_UUID)
    pool_id: str = Field(primary_key=True, sa_type=_TEXT)
    bound_before: str = Field(sa_type=_TEXT)  # at the start of the migration


class RebalanceRow(SQLModel, table=True):
    """Rebalancing of a cluster, one row for each cluster that ever had one. ``move_count``: since its start."""

    __tablename__ = "rebalance"
    cluster: str = Field(primary_key=True, sa_type=_TEXT)
    goals: str = Field(sa_type=_TEXT)  # comma-separated
    moves_per_hour: int
    state: str = Field(sa_type=_TEXT)
    move_count: int = Field(sa_type=_BIG)
    progress: str = Field(sa_type=_TEXT)  # JSON RebalanceProgress
    started_ns: int = Field(sa_type=_BIG)
    updated_ns: int = Field(sa_type=_BIG)


class RebalanceMove(SQLModel, table=True):
    """Move of a pod to another host, with its outcome; the latest of each cluster are kept."""

    __tablename__ = "rebalance_move"
    cluster: str = Field(primary_key=True, sa_type=_TEXT)
    seq: int = Field(primary_key=True, sa_type=_BIG)
    job_id: str = Field(sa_type=_UUID)
    instance_id: int = Field(sa_type=_BIG)
    run_id: int = Field(sa_type=_BIG)
    source: str = Field(sa_type=_TEXT)
    target: str = Field(sa_type=_TEXT)
    goal: str = Field(sa_type=_TEXT)
    reason: str = Field(sa_type=_TEXT)
    state: str = Field(sa_type=_TEXT)
    begun_ns: int = Field(sa_type=_BIG)
    ended_ns: int = Field(sa_type=_BIG)
