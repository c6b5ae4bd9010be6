"""/files of an agent: browse, read and download below its sandboxes, as JSON in Mesos's shape."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs

import orjson

from services.lab.mesos.resources import Json
from services.lab.shared.http.server import TEXT, Request, Response, json_page, plain

# Maximum size of one /files/read answer, as in Mesos (16 pages of memory).
READ_MAX = 16 * 4096
DOWNLOAD_MAX = 1024 * 1024 * 1024
_NO_FILE = Response(404, b"", (("Content-Type", TEXT),))


class Files:
    """Server of `root` under its real path and under the virtual paths /slaves/... and /frameworks/...."""

    def __init__(self, root: Path, agent_id: str, is_secret: Callable[[Path], bool]) -> None:
        """Create the server; ``is_secret`` marks files that a real agent mounts in the container only, and cannot
        serve."""
        self._is_secret = is_secret
        self._root = root.resolve()
        self._agent = self._root / "slaves" / agent_id

    def handle(self, request: Request) -> Response:
        query = {key: values[-1] for key, values in parse_qs(request.query, keep_blank_values=True).items()}
        name = request.path.rsplit("/", 1)[-1]
        given = query.get("path")
        if not given:
            return plain(400, "Expecting 'path=value' in query.\n")
        if "\0" in given:
            return plain(400, "A path has no NUL bytes.\n")
        path = self._resolve(given)
        if path is None or not path.exists():
            return _NO_FILE
        match name:
            case "browse":
                return self._browse(path, given)
            case "read":
                return self._read(path, query)
            case "download":
                return self._download(path)
            case _:
                return _NO_FILE

    def _resolve(self, given: str) -> Path | None:
        """Return the real path, or None when it leaves the agent's directory."""
        path = Path(given)
        if given.startswith("/frameworks/"):
            path = self._agent / given.lstrip("/")
        elif given.startswith("/slaves/"):
            path = self._root / given.lstrip("/")
        elif not path.is_absolute():
            path = self._root / path
        resolved = path.resolve()
        return resolved if resolved.is_relative_to(self._agent) and not self._is_secret(resolved) else None

    def _browse(self, path: Path, given: str) -> Response:
        if not path.is_dir():
            return _NO_FILE
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
        return json_page(orjson.dumps([_row(entry, f"{given.rstrip('/')}/{entry.name}") for entry in entries]))

    def _read(self, path: Path, query: dict[str, str]) -> Response:
        if path.is_dir():
            return plain(400, "Cannot read a directory.\n")
        try:
            offset = int(query.get("offset", "-1"))
            length = int(query.get("length", "-1"))
        except ValueError:
            return plain(400, "Failed to parse offset or length.\n")
        size = path.stat().st_size
        if offset < 0:
            # Returns the size to the client.
            return json_page(orjson.dumps({"data": "", "offset": size}))
        length = READ_MAX if length < 0 else min(length, READ_MAX)
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(length)
        return json_page(orjson.dumps({"data": data.decode("utf-8", "replace"), "offset": offset}))

    def _download(self, path: Path) -> Response:
        if path.is_dir():
            return plain(400, "Cannot download a directory.\n")
        if path.stat().st_size > DOWNLOAD_MAX:
            return plain(413, f"The file exceeds {DOWNLOAD_MAX} bytes")
        headers = (
            ("Content-Disposition", f"attachment; filename={path.name}"),
            ("Content-Type", "application/octet-stream"),
        )
        return Response(200, path.read_bytes(), headers)


def _row(entry: os.DirEntry[str], shown: str) -> Json:
    info = entry.stat()
    try:
        user = pwd.getpwuid(info.st_uid).pw_name
    except KeyError:
        user = str(info.st_uid)
    try:
        group = grp.getgrgid(info.st_gid).gr_name
    except KeyError:
        group = str(info.st_gid)
    return {
        "gid": group,
        "mode": stat.filemode(info.st_mode),
        "mtime": float(int(info.st_mtime)),
        "nlink": info.st_nlink,
        "path": shown,
        "size": info.st_size,
        "uid": user,
    }
