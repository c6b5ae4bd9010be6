"""Tables of job labels, secrets and wakes; ``services/storage/tables.py`` has the other tables and all names."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

_UUID: Any = sa.Uuid(as_uuid=False)

LABEL_INDEXED_MAX = 200
"""Maximum length of indexed labels in characters: PostgreSQL limits index entries to 2.7 kB."""


def shorten_label(key: str, value: str) -> str:
    """Return the text by which jobs with a label are found: the beginning of its key and value as JSON."""
    return ": ".join(json.dumps(text, ensure_ascii=False) for text in (key, value))[:LABEL_INDEXED_MAX]


class JobLabel(SQLModel, table=True):
    """Label of a job, shortened by ``shorten_label``; triggers keep the rows (``migrations/job_labels.py``)."""

    __tablename__ = "job_label"
    __table_args__ = {"sqlite_with_rowid": False}
    label: str = Field(primary_key=True, sa_type=sa.Text)
    created_ns: int = Field(primary_key=True, sa_type=sa.BigInteger)
    job_id: str = Field(primary_key=True, sa_type=_UUID)


class JobSecret(SQLModel, table=True):
    """Data of a job's secret; configurations refer to it by its id. ``holder`` says in which form it is: see
    ``peloton/model/secret.py``."""

    __tablename__ = "job_secret"
    job_id: str = Field(primary_key=True, sa_type=_UUID)
    secret_id: str = Field(primary_key=True, sa_type=_UUID)
    revision: int
    holder: str = Field(default="", sa_type=sa.Text, sa_column_kwargs={"server_default": ""})
    data: bytes = Field(sa_type=sa.LargeBinary)


class JobWake(SQLModel, table=True):
    """Job whose workflow has to process a change or wait for a moment; see ``peloton/lifecycle/wake.py``."""

    __tablename__ = "job_wake"
    __table_args__ = (sa.Index("ix_job_wake_due", "due_ns", "job_id"),)
    job_id: str = Field(primary_key=True, sa_type=_UUID)
    noted_ns: int = Field(sa_type=sa.BigInteger)
    due_ns: int = Field(sa_type=sa.BigInteger)
