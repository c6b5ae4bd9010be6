"""Tables of the audit log; ``services/storage/tables.py`` has the other tables and lists the names of all."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

_TEXT: Any = sa.Text
_BIG: Any = sa.BigInteger


class AuditRow(SQLModel, table=True):
    """Entry of the audit log; immutable. ``seq`` has no gaps."""

    __tablename__ = "audit"
    __table_args__ = (sa.Index("ix_audit_time", "at_ns"),)
    seq: int = Field(primary_key=True, sa_type=_BIG, sa_column_kwargs={"autoincrement": False})
    at_ns: int = Field(sa_type=_BIG)
    writer: str = Field(sa_type=_TEXT)
    number: int = Field(sa_type=_BIG)
    method: str = Field(sa_type=_TEXT)
    result: str = Field(sa_type=_TEXT)
    caller: str = Field(sa_type=_TEXT)
    kind: str = Field(sa_type=_TEXT)
    issuer: str = Field(sa_type=_TEXT)
    via: str = Field(sa_type=_TEXT)
    token_id: str = Field(sa_type=_TEXT)
    peer: str = Field(sa_type=_TEXT)
    object: str = Field(sa_type=_TEXT)
    reason: str = Field(sa_type=_TEXT)
    digest: str = Field(sa_type=_TEXT)
    hash: str = Field(sa_type=_TEXT)


class AuditAnchorRow(SQLModel, table=True):
    """The last entry that was deleted because of its age: the chain of the entries that are kept begins with it."""

    __tablename__ = "audit_anchor"
    seq: int = Field(primary_key=True, sa_type=_BIG, sa_column_kwargs={"autoincrement": False})
    hash: str = Field(sa_type=_TEXT)
