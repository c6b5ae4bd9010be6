"""Stores of the archive: a folder, or a store of objects that obstore can reach."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from peloton.errors import InvalidArgument, NotFound, PelotonError, Unavailable
from peloton.extras import require_extra

RETRIES: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=60)}
"""Retries of one call; what still fails is tried again in the next round of retention."""
BLOCK = 1 << 20
"""Bytes that are read of a file at a time."""
OBJECT_BYTES_MAX = 2 << 30
"""Maximum size of an object that is read; those that are written have some hundred kilobytes."""
LIST_CHUNK = 1_000
"""Number of names that are fetched at a time."""


class Store(Protocol):
    """Store of objects by name. All methods raise Unavailable."""

    def put(self, name: str, source: Path) -> None:
        """Write an object whole, replacing one of the same name; it is durable when this returns."""
        ...

    def fetch(self, name: str, target: Path) -> None:
        """Copy an object into a file. Raises NotFound."""
        ...

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names that begin with a folder, or all of them for an empty one."""
        ...


def open_store(location: str) -> Store:
    """Open the store at a location. Raises InvalidArgument, and Unimplemented without the extra."""
    if location.startswith("/"):
        return FolderStore(Path(location))
    parts = urlsplit(location)
    if parts.scheme == "file":
        return FolderStore(Path(unquote(parts.path)))
    return ObjectStore(location)


class FolderStore:
    """Folder on a disk of this machine, or on a network disk."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, name: str, source: Path) -> None:
        target = self._root / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".part-", delete=False) as part:
                try:
                    with source.open("rb") as file:
                        shutil.copyfileobj(file, part)
                    part.flush()
                    os.fsync(part.fileno())
                    os.replace(part.name, target)
                except BaseException:
                    Path(part.name).unlink(missing_ok=True)
                    raise
            for folder in (target.parent, *target.parent.parents):
                _sync_folder(folder)
                if folder == self._root:
                    break
        except OSError as error:
            raise Unavailable(f"archive {self._root} cannot be written: {error}") from error

    def fetch(self, name: str, target: Path) -> None:
        try:
            with (self._root / name).open("rb") as file:
                _copy(name, iter(lambda: file.read(BLOCK), b""), target)
        except FileNotFoundError:
            raise NotFound(f"archive {self._root} has no object {name}") from None
        except OSError as error:
            raise Unavailable(f"archive {self._root} cannot be read: {error}") from error

    def names(self, prefix: str) -> Iterator[str]:
        top = self._root / prefix
        for folder, folders, files in os.walk(top):
            folders.sort()
            for file in sorted(files):
                if not file.startswith("."):
                    yield (Path(folder) / file).relative_to(self._root).as_posix()


def _copy(name: str, blocks: Iterable[bytes], target: Path) -> None:
    """Copy an object into a file. Raises InvalidArgument for one beyond OBJECT_BYTES_MAX."""
    size = 0
    with target.open("wb") as file:
        for block in blocks:
            size += len(block)
            if size > OBJECT_BYTES_MAX:
                raise InvalidArgument(f"object {name} of the archive has more than {OBJECT_BYTES_MAX} bytes")
            file.write(block)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class ObjectStore:
    """Store of objects at a URL. Keys and endpoint come from variables of the store, such as AWS_ENDPOINT_URL."""

    def __init__(self, url: str) -> None:
        require_extra("archive", "obstore", f"archive {url}")
        import obstore.store

        self._url = url
        try:
            self._store: Any = obstore.store.from_url(url, retry_config=RETRIES)
        except Exception as error:  # of obstore, whose errors have no common class here
            raise InvalidArgument(f"archive {url} cannot be opened: {error}") from error

    def put(self, name: str, source: Path) -> None:
        try:
            self._store.put(name, source)
        except Exception as error:
            raise Unavailable(f"archive {self._url} cannot be written: {error}") from error

    def fetch(self, name: str, target: Path) -> None:
        try:
            _copy(name, self._store.get(name).stream(), target)
        except PelotonError:
            raise
        except FileNotFoundError:
            raise NotFound(f"archive {self._url} has no object {name}") from None
        except Exception as error:
            raise Unavailable(f"archive {self._url} cannot be read: {error}") from error

    def names(self, prefix: str) -> Iterator[str]:
        try:
            for page in self._store.list(prefix or None, chunk_size=LIST_CHUNK):
                yield from (entry["path"] for entry in page)
        except Exception as error:
            raise Unavailable(f"archive {self._url} cannot be listed: {error}") from error
