"""Table of daemons; ``services/storage/tables.py`` lists the names of all tables."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

_UUID: Any = sa.Uuid(as_uuid=False)


class DaemonHost(SQLModel, table=True):
    """Host to which an instance of a daemon is assigned.

    ``gone_ns`` is the time since which the host does not match, 0 while it does; the assignment is kept for a while.
    """

    __tablename__ = "daemon_host"
    __table_args__ = (sa.Index("ix_daemon_host_name", "job_id", "hostname"),)
    job_id: str = Field(primary_key=True, sa_type=_UUID)
    instance_id: int = Field(primary_key=True, sa_type=sa.BigInteger)
    hostname: str = Field(sa_type=sa.Text)
    cluster: str = Field(sa_type=sa.Text)
    gone_ns: int = Field(sa_type=sa.BigInteger)
