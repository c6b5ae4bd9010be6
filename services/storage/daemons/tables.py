"""The table of daemons; ``services/storage/tables.py`` has the names of all."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

_UUID: Any = sa.Uuid(as_uuid=False)


class DaemonHost(SQLModel, table=True):
    """The host that has an instance of a daemon. ``gone_ns``: since when it does not match; the instance is kept for it
    a while."""

    __tablename__ = "daemon_host"
    __table_args__ = (sa.Index("ix_daemon_host_name", "job_id", "hostname"),)
    job_id: str = Field(primary_key=True, sa_type=_UUID)
    instance_id: int = Field(primary_key=True, sa_type=sa.BigInteger)
    hostname: str = Field(sa_type=sa.Text)
    cluster: str = Field(sa_type=sa.Text)
    gone_ns: int = Field(sa_type=sa.BigInteger)
