"""``peloton admin backup`` and ``restore``: copies of the database, of Temporal's store and of schedules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.command import Command
from cli.serve import config_option
from cli.terminal import echo
from peloton.release import read_version

if TYPE_CHECKING:
    from services.backup.backup import Stores
    from services.settings import Settings

PARTS = "database", "temporal", "schedules"
data_option = click.option(
    "--data",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Data folder of a `peloton up`, which has both stores.",
)
temporal_option = click.option(
    "--temporal-store",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The SQLite file of an embedded Temporal.",
)


@click.command(cls=Command)
@click.argument("folder", type=click.Path(path_type=Path))
@data_option
@temporal_option
@click.option("--schedules/--no-schedules", default=True, help="Ask Temporal for the schedules; on by default.")
@config_option
def backup(folder: Path, data: Path | None, temporal_store: Path | None, schedules: bool, config: str) -> None:
    """Copy both stores into a new FOLDER, while Peloton runs.

    The database is the one that PELOTON_DATABASE names, SQLite or PostgreSQL. Without an embedded Temporal, back its
    database up by its own means; jobs need none of it. The folder has a manifest with checksums.

    \b
    Examples:
      peloton admin backup /backups/monday --data ~/.peloton/up --no-schedules
      PELOTON_DATABASE=postgresql+psycopg://peloton@db/peloton peloton admin backup /backups/monday
    """
    from services.backup import backup as backups

    settings, stores = _read_stores(config, data, temporal_store)
    made = backups.take(settings, stores, folder, read_version(), schedules)
    temporal = ", Temporal's store" if made.has_temporal else ""
    count = f", {made.schedule_count} schedules" if made.schedule_count is not None else ""
    size_mib = sum(path.stat().st_size for path in folder.iterdir()) / 2**20
    echo(f"{folder}: the database (schema {made.schema}){temporal}{count}; {size_mib:.1f} MiB")


@click.command(cls=Command)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--part", "parts", multiple=True, type=click.Choice(PARTS), help="Restore only this; may be repeated. [database]"
)
@data_option
@temporal_option
@click.option("--replace", is_flag=True, help="Replace a database with jobs, or a store of Temporal that is there.")
@config_option
def restore(
    folder: Path, parts: Sequence[str], data: Path | None, temporal_store: Path | None, replace: bool, config: str
) -> None:
    """Restore parts of a backup in FOLDER, while no role runs.

    `database` and `temporal` need not be of one moment, and one may be lost: see Backup and restore in
    docs/operations.md. Host managers launch nothing until they have compared a restored database with their clusters.
    `schedules` creates those that a running Temporal lacks.

    \b
    Examples:
      peloton admin restore /backups/monday --data ~/.peloton/up --part database --part temporal --replace
      peloton admin restore /backups/monday --part schedules
    """
    from services.backup import backup as backups

    settings, stores = _read_stores(config, data, temporal_store)
    chosen = [backups.Part(part) for part in parts or ("database",)]
    for line in backups.restore(settings, stores, folder, chosen, replace):
        echo(line)


def _read_stores(config: str, data: Path | None, temporal_store: Path | None) -> tuple[Settings, Stores]:
    from services.backup.backup import Stores
    from services.settings import load

    settings: Any = load(config=config)
    if data is None:
        return settings, Stores(settings.require_database(), temporal_store)
    return settings, Stores(f"sqlite:///{data / 'peloton.db'}", temporal_store or data / "temporal.db")
