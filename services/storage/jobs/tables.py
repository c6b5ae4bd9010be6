"""Tables of job secrets and wakes; ``services/storage/tables.py`` has the other tables and lists the names of all."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

_UUID: Any = sa.Uuid(as_uuid=False)


class JobSecret(SQLModel, table=True):
    """Data of a job's secret; configurations refer to it by its id."""

    __tablename__ = "job_secret"
    job_id: str = Field(primary_key=True, sa_type=_UUID)
    secret_id: str = Field(primary_key=True, sa_type=_UUID)
    revision: int
    data: bytes = Field(sa_type=sa.LargeBinary)


class JobWake(SQLModel, table=True):
    """Job whose workflow has to process a change or wait for a moment; see ``peloton/lifecycle/wake.py``."""

    __tablename__ = "job_wake"
    __table_args__ = (sa.Index("ix_job_wake_due", "due_ns", "job_id"),)
    job_id: str = Field(primary_key=True, sa_type=_UUID)
    noted_ns: int = Field(sa_type=sa.BigInteger)
    due_ns: int = Field(sa_type=sa.BigInteger)
