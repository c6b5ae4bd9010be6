"""Tables of time series; ``services/storage/tables.py`` has the other tables and lists the names of all."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

_TEXT: Any = sa.Text
_BIG: Any = sa.BigInteger
_BLOB: Any = sa.LargeBinary


class HistorySampleRow(SQLModel, table=True):
    """Sample of all series at one moment, kept until its hour is over and folded into pages."""

    __tablename__ = "history_sample"
    at_s: int = Field(primary_key=True, sa_type=_BIG)
    sample: bytes = Field(sa_type=_BLOB)


class HistoryPageRow(SQLModel, table=True):
    """Page of one series: an hour in minutes or a day in hours, as ``step_s`` says."""

    __tablename__ = "history_page"
    __table_args__ = (
        sa.Index("ix_history_page_age", "step_s", "start_s"),
        {"sqlite_with_rowid": False},
    )
    series: str = Field(primary_key=True, sa_type=_TEXT)
    step_s: int = Field(primary_key=True)
    start_s: int = Field(primary_key=True, sa_type=_BIG)
    page: bytes = Field(sa_type=_BLOB)
