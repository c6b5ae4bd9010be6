"""Table of volumes; ``services/storage/tables.py`` has the other tables and lists the names of all."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

_UUID: Any = sa.Uuid(as_uuid=False)
_TEXT: Any = sa.Text
_BIG: Any = sa.BigInteger
_SMALL: Any = sa.SmallInteger


class Volume(SQLModel, table=True):
    """Persistent volume of an instance. It outlives its job: the row is deleted when its host has destroyed it."""

    __tablename__ = "volume"
    __table_args__ = (sa.Index("ix_volume_job", "job_id"),)
    volume_id: str = Field(primary_key=True, sa_type=_UUID)
    job_id: str = Field(sa_type=_UUID)
    instance_id: int = Field(sa_type=_BIG)
    run_id: int = Field(sa_type=_BIG)
    respool_id: str = Field(sa_type=_TEXT)
    cluster: str = Field(sa_type=_TEXT)
    host: str = Field(sa_type=_TEXT)
    container_path: str = Field(sa_type=_TEXT)
    size_mib: int = Field(sa_type=_BIG)
    state: int = Field(sa_type=_SMALL)
    goal: int = Field(sa_type=_SMALL)
    note: str = Field(sa_type=_TEXT)
    created_ns: int = Field(sa_type=_BIG)
    changed_ns: int = Field(sa_type=_BIG)
