"""The archive: one object of JSON lines for each deleted batch, compressed with zstd, and its manifest.

The name of an object follows from the first record of its batch and from its content: a batch that is repeated after an
interruption overwrites its object with the same bytes, and a leader that was frozen before its write replaces no object
of its successor, whose batch may have been larger. The manifest is written last; the records of an object without one
are still in the database, or in another object.

    pods/2026/11/27/093012.000000000-<job>-<instance>-<digest>.jsonl.zst
    pods/2026/11/27/093012.000000000-<job>-<instance>-<digest>.manifest.json
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import orjson
import zstandard

from peloton.errors import InvalidArgument
from peloton.model.times import NS_PER_S
from services.retention.stores import BLOCK, Store, open_store
from services.settings import Settings
from services.storage.retention.records import Written

LINES, MANIFEST = ".jsonl.zst", ".manifest.json"
FORMAT = 1
LEVEL = 6
DIGEST_CHARS = 12
"""Digits of the SHA-256 of an object in its name."""
MANIFEST_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Manifest:
    """Description of an object: its lines by kind, its size in bytes and the SHA-256 of these."""

    name: str
    lines: int
    bytes: int
    sha256: str
    kinds: dict[str, int] = field(default_factory=dict)
    format: int = FORMAT


class Archive:
    def __init__(self, store: Store) -> None:
        self.store = store

    # -- writing

    def write(self, group: str, first_ns: int, key: str, lines: Iterable[dict[str, Any]]) -> Written | None:
        """Write the lines of a batch whose first record is of ``first_ns``; durable when this returns.

        Returns None when there are no lines. Raises Unavailable.
        """
        kinds, digest, size = Counter[str](), hashlib.sha256(), 0
        with tempfile.TemporaryDirectory(prefix="peloton-archive-") as folder:
            path = Path(folder) / "lines"
            with path.open("wb") as file, zstandard.ZstdCompressor(level=LEVEL).stream_writer(file) as packed:
                for line in lines:
                    kinds[line["kind"]] += 1
                    packed.write(orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS) + b"\n")
            if not kinds:
                return None
            for block in blocks_of(path):
                digest.update(block)
                size += len(block)
            name = f"{name_of(group, first_ns, key)}-{digest.hexdigest()[:DIGEST_CHARS]}"
            self.store.put(name + LINES, path)
            manifest = Manifest(name + LINES, kinds.total(), size, digest.hexdigest(), dict(sorted(kinds.items())))
            path.write_bytes(json.dumps(asdict(manifest), indent=1).encode())
            self.store.put(name + MANIFEST, path)
        return Written(name + LINES, size)

    # -- reading

    def list_objects(self, group: str = "", since: date | None = None, until: date | None = None) -> Iterator[str]:
        """Yield the names of the objects of a class, whose first records are of the days from ``since`` to ``until``,
        both included."""
        for name in self.store.names(group):
            if name.endswith(LINES):
                day = day_of(name)
                if (since is None or day >= since) and (until is None or day <= until):
                    yield name

    def read_manifest(self, name: str) -> Manifest:
        """Read the manifest of an object. Raises NotFound, InvalidArgument."""
        with tempfile.TemporaryDirectory(prefix="peloton-archive-") as folder:
            path = Path(folder) / "manifest"
            self.store.fetch(name.removesuffix(LINES) + MANIFEST, path)
            if path.stat().st_size > MANIFEST_MAX:
                raise InvalidArgument(f"manifest of {name} has {path.stat().st_size} bytes, limit {MANIFEST_MAX}")
            try:
                return Manifest(**json.loads(path.read_bytes()))
            except (ValueError, TypeError) as error:
                raise InvalidArgument(f"manifest of {name} cannot be read: {error}") from error

    def find_fault(self, name: str) -> str:
        """Compare an object with its manifest; returns the difference, empty without one. Raises NotFound."""
        manifest, digest, size, lines = self.read_manifest(name), hashlib.sha256(), 0, 0
        with tempfile.TemporaryDirectory(prefix="peloton-archive-") as folder:
            path = Path(folder) / "lines"
            self.store.fetch(name, path)
            for block in blocks_of(path):
                digest.update(block)
                size += len(block)
            if size != manifest.bytes:
                return f"has {size} bytes, its manifest says {manifest.bytes}"
            if digest.hexdigest() != manifest.sha256:
                return f"has the SHA-256 {digest.hexdigest()}, its manifest says {manifest.sha256}"
            with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as unpacked:
                while block := unpacked.read(BLOCK):
                    lines += block.count(b"\n")
        return "" if lines == manifest.lines else f"has {lines} lines, its manifest says {manifest.lines}"


def open_archive(settings: Settings, location: str = "") -> Archive | None:
    """Open the archive at a location, by default the one of the settings; None if they name none. Raises
    InvalidArgument, and Unimplemented without the extra that it needs."""
    location = location or settings.archive
    return Archive(open_store(location)) if location else None


def name_of(group: str, first_ns: int, key: str) -> str:
    seconds, nanos = divmod(first_ns, NS_PER_S)
    return f"{group}/{datetime.fromtimestamp(seconds, UTC):%Y/%m/%d/%H%M%S}.{nanos:09d}-{key}"


def day_of(name: str) -> date:
    """Return the day in the name of an object. Raises InvalidArgument."""
    try:
        _, year, month, day, _ = name.split("/")
        return date(int(year), int(month), int(day))
    except ValueError:
        raise InvalidArgument(f"{name} is no object of an archive: want CLASS/YEAR/MONTH/DAY/NAME{LINES}") from None


def blocks_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            yield block
