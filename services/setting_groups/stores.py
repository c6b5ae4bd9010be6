"""Settings of the database and of Temporal."""

from __future__ import annotations

from dataclasses import dataclass

from services.setting_rules import ADDRESS, DATABASE_URL, SERVERS, URL, WORD, setting


@dataclass(frozen=True)
class StoresSettings:
    database: str = setting(
        "",
        SERVERS,
        "required: SQLAlchemy URL of the store, `sqlite:///FILE` or `postgresql+psycopg://USER:PASSWORD@HOST/NAME`",
        form=DATABASE_URL,
    )
    database_pool: int = setting(
        16,
        SERVERS,
        "connections that a process keeps open to PostgreSQL; it opens as many again while it needs them. See "
        "[PostgreSQL](operations.md#postgresql)",
        low=1,
        high=1_000,
    )
    temporal: str = setting(
        "",
        SERVERS,
        "host:port of the Temporal frontend; empty: as [Temporal's own configuration](operations.md#temporal) says, "
        "else `localhost:7233`",
        form=ADDRESS,
    )
    temporal_namespace: str = setting(
        "",
        f"{SERVERS} web",
        "Temporal namespace, one per Peloton; empty: as Temporal's own configuration says, else `default`",
        form=WORD,
    )
    temporal_ui: str = setting(
        "",
        "web",
        "URL of Temporal's Web UI, such as `http://temporal:8080`, to which pages link; empty: they do not",
        form=URL,
    )
