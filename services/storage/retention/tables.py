"""Tables of retention; ``services/storage/tables.py`` has the other tables and lists the names of all."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

_UUID: Any = sa.Uuid(as_uuid=False)
_TEXT: Any = sa.Text
_BIG: Any = sa.BigInteger


class RetentionProgress(SQLModel, table=True):
    """Progress of the deletion in a class of records: its cursor, and sums since the installation.

    ``note`` is the last failure, or the reason for which the last round ended early.
    """

    __tablename__ = "retention_progress"
    name: str = Field(primary_key=True, sa_type=_TEXT)
    ended_ns: int = Field(sa_type=_BIG)
    job_id: str = Field(sa_type=_TEXT)
    instance_id: int = Field(sa_type=_BIG)
    deleted_count: int = Field(sa_type=_BIG)
    archived_bytes: int = Field(sa_type=_BIG)
    ran_ns: int = Field(sa_type=_BIG)
    note: str = Field(sa_type=_TEXT)


class ArchiveObject(SQLModel, table=True):
    """Object of the archive whose records are deleted from the database."""

    __tablename__ = "archive_object"
    object_id: int = Field(primary_key=True, sa_type=_BIG, sa_column_kwargs={"autoincrement": False})
    name: str = Field(sa_type=_TEXT)
    written_ns: int = Field(sa_type=_BIG)


class PrunedJob(SQLModel, table=True):
    """Job that retention has deleted; ``object_id`` is its object in the archive, 0 without an archive."""

    __tablename__ = "pruned_job"
    __table_args__ = (sa.Index("ix_pruned_job_age", "pruned_ns"), {"sqlite_with_rowid": False})
    job_id: str = Field(primary_key=True, sa_type=_UUID)
    object_id: int = Field(sa_type=_BIG)
    pruned_ns: int = Field(sa_type=_BIG)
