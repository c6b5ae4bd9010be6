"""Tables of updates; ``services/storage/tables.py`` has the other tables and lists the names of all."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

_UUID: Any = sa.Uuid(as_uuid=False)
_TEXT: Any = sa.Text
_BIG: Any = sa.BigInteger
_SMALL: Any = sa.SmallInteger


class JobUpdate(SQLModel, table=True):
    """Rollout of a job. Sets of instances are stored as ranges ``0-4,7``."""

    __tablename__ = "job_update"
    __table_args__ = (sa.Index("ix_job_update_job", "job_id"),)
    update_id: str = Field(primary_key=True, sa_type=_UUID)
    job_id: str = Field(sa_type=_UUID)
    type: str = Field(sa_type=_TEXT)
    spec: str = Field(sa_type=_TEXT)  # JSON UpdateSpec
    state: str = Field(sa_type=_TEXT)
    prev_state: str = Field(sa_type=_TEXT)
    config_version: int
    prev_config_version: int
    added: str = Field(sa_type=_TEXT)
    updated: str = Field(sa_type=_TEXT)
    removed: str = Field(sa_type=_TEXT)
    current: str = Field(sa_type=_TEXT)
    done: str = Field(sa_type=_TEXT)
    failed: str = Field(sa_type=_TEXT)
    opaque_data: str = Field(sa_type=_TEXT)
    update_key: str = Field(sa_type=_TEXT)
    request_digest: str = Field(sa_type=_TEXT)
    pulsed_ns: int = Field(sa_type=_BIG)
    awaits_pulse: bool
    waiting_for: str = Field(sa_type=_TEXT)
    progressed_ns: int = Field(sa_type=_BIG, sa_column_kwargs={"server_default": "0"})
    stalled_ns: int = Field(sa_type=_BIG, sa_column_kwargs={"server_default": "0"})
    stall_cause: str = Field(sa_type=_TEXT, sa_column_kwargs={"server_default": ""})
    created_ns: int = Field(sa_type=_BIG)
    updated_ns: int = Field(sa_type=_BIG)
    completed_ns: int = Field(sa_type=_BIG)


class JobUpdateEvent(SQLModel, table=True):
    """Event of an update: ``instances`` reached ``state`` together; if empty, the update itself did.
    ``person`` requested it; empty: no request led to it."""

    __tablename__ = "job_update_event"
    update_id: str = Field(primary_key=True, sa_type=_UUID)
    seq: int = Field(primary_key=True)
    time_ns: int = Field(sa_type=_BIG)
    state: str = Field(sa_type=_TEXT)
    instances: str = Field(sa_type=_TEXT)
    person: str = Field(default="", sa_type=_TEXT, sa_column_kwargs={"server_default": ""})


class DisruptionRow(SQLModel, table=True):
    """Disruption of pods, granted or refused by the SLA; the latest of each job are kept."""

    __tablename__ = "disruption"
    job_id: str = Field(primary_key=True, sa_type=_UUID)
    seq: int = Field(primary_key=True)
    time_ns: int = Field(sa_type=_BIG)
    reason: int = Field(sa_type=_SMALL)
    granted: bool
    instances: str = Field(sa_type=_TEXT)
    message: str = Field(sa_type=_TEXT)
