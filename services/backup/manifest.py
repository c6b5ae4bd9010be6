"""The manifest of a backup: what it has, from when, and checksums. A folder without one is no backup."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from peloton.errors import InvalidArgument
from peloton.files import read_file

NAME = "manifest.json"
FORMAT = 1
MANIFEST_BYTES_MAX = 1 << 20
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class Manifest:
    release: str
    schema: str
    dialect: str
    """Kind of the database, ``sqlite`` or ``postgresql``; a backup is restored to the same."""
    began_s: float
    """Unix seconds; the copies are not older."""
    tables: dict[str, list[str]] = field(default_factory=dict)
    """Columns by table, of a PostgreSQL."""
    has_temporal: bool = False
    schedule_count: int | None = None
    """None: schedules were not asked for."""
    files: dict[str, str] = field(default_factory=dict)
    """SHA-256 by name."""
    format: int = FORMAT


def write(folder: Path, manifest: Manifest) -> None:
    """Write the manifest last: it makes the folder a backup."""
    temporary = folder / f"{NAME}.new"
    temporary.write_text(json.dumps(asdict(manifest), indent=2) + "\n", encoding="utf-8")
    temporary.rename(folder / NAME)


def read(folder: Path) -> Manifest:
    """Read the manifest, and compare the checksums. Raises InvalidArgument."""
    path = folder / NAME
    try:
        manifest = Manifest(**json.loads(read_file(path, "manifest", MANIFEST_BYTES_MAX)))
    except FileNotFoundError:
        raise InvalidArgument(f"{folder} is no complete backup: it has no {NAME}") from None
    except (OSError, ValueError, TypeError) as error:
        raise InvalidArgument(f"{path} cannot be read: {error}") from error
    if manifest.format != FORMAT:
        raise InvalidArgument(f"{folder} has format {manifest.format}; this release reads {FORMAT}")
    for name, expected in manifest.files.items():
        if Path(name).name != name:
            raise InvalidArgument(f"{path} names a file outside the folder: {name!r}")
        if (found := checksum(folder / name)) != expected:
            raise InvalidArgument(f"{folder / name} is damaged: SHA-256 {found or 'of no file'}, want {expected}")
    return manifest


def checksum(path: Path) -> str:
    """Return the SHA-256 of the file; "" if there is none."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                digest.update(piece)
    except FileNotFoundError:
        return ""
    return digest.hexdigest()
