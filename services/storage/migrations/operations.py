"""Operations of migrations. No column is null, and objects that exist already are left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

Kind = Callable[[str], sa.Column[Any]]
"""Function from the name of a column to the column."""


def kind(type_: Any, **options: Any) -> Kind:
    return lambda name: sa.Column(name, type_, nullable=False, **options)


UUID, TEXT, BLOB = kind(sa.Uuid(as_uuid=False)), kind(sa.Text()), kind(sa.LargeBinary())
SMALL, INT, BIG = kind(sa.SmallInteger()), kind(sa.Integer()), kind(sa.BigInteger())
BOOL, FLOAT = kind(sa.Boolean()), kind(sa.Double())
SEQ = kind(sa.BigInteger(), autoincrement=False)
NO_TEXT, ZERO = kind(sa.Text(), server_default=""), kind(sa.Integer(), server_default="0")
BIG_ZERO = kind(sa.BigInteger(), server_default="0")
WITHOUT_ROWID = {"sqlite_with_rowid": False}
_COUNTER = sa.table("counter", sa.column("name", sa.Text), sa.column("value", sa.BigInteger))


def table(name: str, key: str, /, *options: Mapping[str, Any], **columns: Kind) -> sa.Table:
    """Describe a table; ``key`` has the names of the columns of its primary key."""
    made = [make(column) for column, make in columns.items()]
    given = {option: value for each in options for option, value in each.items()}
    return sa.Table(name, sa.MetaData(), *made, sa.PrimaryKeyConstraint(*key.split()), **given)


def create_tables(tables: Iterable[sa.Table]) -> None:
    for one in tables:
        one.create(op.get_bind(), checkfirst=True)


def drop_tables(tables: Iterable[sa.Table]) -> None:
    for one in tables:
        one.drop(op.get_bind())


def create_index(name: str, table: str, columns: str, where: str = "", **options: Any) -> None:
    """Create an index; ``where`` restricts it to a part of the rows."""
    if where:
        options |= {"postgresql_where": sa.text(where), "sqlite_where": sa.text(where)}
    op.create_index(name, table, columns.split(), if_not_exists=True, **options)


def add_columns(table: str, /, **columns: Kind) -> None:
    known = {column["name"] for column in sa.inspect(op.get_bind()).get_columns(table)}
    for name in columns:
        if name in known:
            continue
        op.add_column(table, columns[name](name))


def add_counters(*names: str) -> None:
    known = set(op.get_bind().execute(sa.select(_COUNTER.c.name)).scalars())
    op.bulk_insert(_COUNTER, [{"name": name, "value": 0} for name in names if name not in known])


def drop_columns(table: str, *names: str) -> None:
    with op.batch_alter_table(table) as batch:
        for name in names:
            batch.drop_column(name)


def drop_counters(*names: str) -> None:
    op.execute(_COUNTER.delete().where(_COUNTER.c.name.in_(names)))
