"""The tables of hosts and host pools; ``services/storage/tables.py`` has the others, and the names of all."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

_TEXT: Any = sa.Text
_BIG: Any = sa.BigInteger
_SMALL: Any = sa.SmallInteger
HAS_LEFT = "kind = 'LEFT'"
"""For an index; a query that uses it has the same words."""
_LEFT = sa.text(HAS_LEFT)
_ZERO: dict[str, Any] = {"server_default": "0"}


class HostPoolRow(SQLModel, table=True):
    """A host pool; the default one has a row once somebody has changed it. ``serves``: workloads with commas between
    them."""

    __tablename__ = "host_pool"
    name: str = Field(primary_key=True, sa_type=_TEXT)
    serves: str = Field(sa_type=_TEXT)
    cpu_percent: int
    memory_percent: int
    disk_percent: int
    created_ns: int = Field(sa_type=_BIG)
    minimum_hosts: int = Field(default=0, sa_column_kwargs=_ZERO)


class HostInPoolRow(SQLModel, table=True):
    """Where a host is and is to be; a host without a row is, and stays, in the default host pool. It outlives the
    registration of the host, which comes back to its host pool. ``lent_by``: the host pool from which the mover took
    it. ``at_most``: hosts that may be away for its move to begin, 0: the installation's bound."""

    __tablename__ = "host_in_pool"
    hostname: str = Field(primary_key=True, sa_type=_TEXT)
    pool: str = Field(sa_type=_TEXT)
    desired_pool: str = Field(sa_type=_TEXT)
    changed_ns: int = Field(sa_type=_BIG)
    lent_by: str = Field(default="", sa_type=_TEXT, sa_column_kwargs={"server_default": ""})
    at_most: int = Field(default=0, sa_column_kwargs=_ZERO)


class HostPoolMoveRow(SQLModel, table=True):
    """What the mover of host pools has done, which its budget of an hour is read from."""

    __tablename__ = "host_pool_move"
    seq: int = Field(primary_key=True, sa_type=_BIG)
    source: str = Field(sa_type=_TEXT)
    destination: str = Field(sa_type=_TEXT)
    rule: str = Field(sa_type=_TEXT)
    reason: str = Field(sa_type=_TEXT)
    hostnames: str = Field(sa_type=_TEXT)  # with commas between them
    moved_ns: int = Field(sa_type=_BIG)


class Framework(SQLModel, table=True):
    __tablename__ = "framework"
    cluster: str = Field(primary_key=True, sa_type=_TEXT)
    framework_id: str = Field(sa_type=_TEXT)


class ClusterHost(SQLModel, table=True):
    """Hosts that are registered, each in one cluster only."""

    __tablename__ = "cluster_host"
    hostname: str = Field(primary_key=True, sa_type=_TEXT)
    cluster: str = Field(sa_type=_TEXT)


class HostRow(SQLModel, table=True):
    """A host in maintenance, or on its way to a host pool; one without a row is UP. ``seq``: order of the requests."""

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
    capacity: str = Field(sa_type=_TEXT)  # JSON amounts by RESOURCE_KINDS; empty: not known
    to_pool: str = Field(sa_type=_TEXT, sa_column_kwargs={"server_default": ""})  # it moves instead of going down


class HostEventRow(SQLModel, table=True):
    """What happened to a host, in the order of the commits. ``until_ns``: for how long it holds; 0 = that is open."""

    __tablename__ = "host_event"
    __table_args__ = (
        sa.Index("ix_host_event_host", "hostname", "seq"),
        sa.Index("ix_host_event_left", "hostname", "seq", postgresql_where=_LEFT, sqlite_where=_LEFT),
    )
    seq: int = Field(primary_key=True, sa_type=_BIG, sa_column_kwargs={"autoincrement": False})
    hostname: str = Field(sa_type=_TEXT)
    cluster: str = Field(sa_type=_TEXT)
    kind: str = Field(sa_type=_TEXT)
    text: str = Field(sa_type=_TEXT)
    at_ns: int = Field(sa_type=_BIG)
    until_ns: int = Field(sa_type=_BIG)
