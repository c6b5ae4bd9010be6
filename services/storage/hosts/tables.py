"""Tables of hosts and host pools; ``services/storage/tables.py`` has the other tables and lists the names of all."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

_TEXT: Any = sa.Text
_BIG: Any = sa.BigInteger
_SMALL: Any = sa.SmallInteger
HAS_LEFT = "kind = 'LEFT'"
"""Condition of a partial index; queries must use the same text for the index to apply."""
_LEFT = sa.text(HAS_LEFT)
BEGIN_AND_END = "kind in ('CORDONED', 'UNCORDONED', 'RESERVED', 'GIVEN_BACK')"
"""Condition of another partial index: kinds that a new host manager looks up."""
_BEGIN_AND_END = sa.text(BEGIN_AND_END)
_ZERO: dict[str, Any] = {"server_default": "0"}


class HostPoolRow(SQLModel, table=True):
    """Host pool; the default pool has a row only once it has been changed. ``serves``: comma-separated workloads."""

    __tablename__ = "host_pool"
    name: str = Field(primary_key=True, sa_type=_TEXT)
    serves: str = Field(sa_type=_TEXT)
    cpu_percent: int
    memory_percent: int
    disk_percent: int
    created_ns: int = Field(sa_type=_BIG)
    minimum_hosts: int = Field(default=0, sa_column_kwargs=_ZERO)


class HostInPoolRow(SQLModel, table=True):
    """Current and desired host pool of a host; a host without a row is, and stays, in the default pool.

    The row outlives the registration of the host, which returns to its pool. ``lent_by`` is the pool from which the
    mover took the host. ``at_most`` is the number of unavailable hosts up to which its move may begin, 0 for the
    installation's bound.
    """

    __tablename__ = "host_in_pool"
    hostname: str = Field(primary_key=True, sa_type=_TEXT)
    pool: str = Field(sa_type=_TEXT)
    desired_pool: str = Field(sa_type=_TEXT)
    changed_ns: int = Field(sa_type=_BIG)
    lent_by: str = Field(default="", sa_type=_TEXT, sa_column_kwargs={"server_default": ""})
    at_most: int = Field(default=0, sa_column_kwargs=_ZERO)


class HostPoolMoveRow(SQLModel, table=True):
    """Log of the mover's moves, from which its hourly budget is computed."""

    __tablename__ = "host_pool_move"
    seq: int = Field(primary_key=True, sa_type=_BIG)
    source: str = Field(sa_type=_TEXT)
    destination: str = Field(sa_type=_TEXT)
    rule: str = Field(sa_type=_TEXT)
    reason: str = Field(sa_type=_TEXT)
    hostnames: str = Field(sa_type=_TEXT)  # comma-separated
    moved_ns: int = Field(sa_type=_BIG)


class Framework(SQLModel, table=True):
    __tablename__ = "framework"
    cluster: str = Field(primary_key=True, sa_type=_TEXT)
    framework_id: str = Field(sa_type=_TEXT)


class ClusterHost(SQLModel, table=True):
    """Registered host, which belongs to exactly one cluster."""

    __tablename__ = "cluster_host"
    hostname: str = Field(primary_key=True, sa_type=_TEXT)
    cluster: str = Field(sa_type=_TEXT)
    address: str = Field(sa_type=_TEXT, sa_column_kwargs={"server_default": ""})


class HostRow(SQLModel, table=True):
    """Host in maintenance or on its way to a host pool; a host without a row is UP. ``seq``: order of the requests."""

    __tablename__ = "host"
    cluster: str = Field(primary_key=True, sa_type=_TEXT)
    hostname: str = Field(primary_key=True, sa_type=_TEXT)
    ip: str = Field(sa_type=_TEXT)
    state: int = Field(sa_type=_SMALL)
    goal: int = Field(sa_type=_SMALL)
    seq: int = Field(sa_type=_BIG)
    at_most: int = Field(sa_type=_BIG)
    deadline_s: int = Field(sa_type=_BIG)
    is_forced: bool
    reason: str = Field(sa_type=_TEXT)
    requested_ns: int = Field(sa_type=_BIG)
    drained_from_ns: int = Field(sa_type=_BIG)
    changed_ns: int = Field(sa_type=_BIG)
    progress: str = Field(sa_type=_TEXT)  # JSON DrainProgress
    capacity: str = Field(sa_type=_TEXT)  # JSON amounts by RESOURCE_KINDS; empty: unknown
    to_pool: str = Field(sa_type=_TEXT, sa_column_kwargs={"server_default": ""})  # set if the host moves


class HostEventRow(SQLModel, table=True):
    """Event of a host, in the order of commits. ``until_ns``: when its effect ends; 0 if that is open."""

    __tablename__ = "host_event"
    __table_args__ = (
        sa.Index("ix_host_event_host", "hostname", "seq"),
        sa.Index("ix_host_event_left", "hostname", "seq", postgresql_where=_LEFT, sqlite_where=_LEFT),
        sa.Index(
            "ix_host_event_open",
            *("cluster", "hostname", "kind", "seq"),
            postgresql_where=_BEGIN_AND_END,
            sqlite_where=_BEGIN_AND_END,
        ),
    )
    seq: int = Field(primary_key=True, sa_type=_BIG, sa_column_kwargs={"autoincrement": False})
    hostname: str = Field(sa_type=_TEXT)
    cluster: str = Field(sa_type=_TEXT)
    kind: str = Field(sa_type=_TEXT)
    text: str = Field(sa_type=_TEXT)
    at_ns: int = Field(sa_type=_BIG)
    until_ns: int = Field(sa_type=_BIG)
