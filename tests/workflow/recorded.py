"""Recorded histories: a folder for each release, and ``next`` for histories recorded since the last release.

Later code replays the running jobs of a release from these histories, so they never change: ``FROZEN`` holds their
checksums, as sha256sum prints them. ``python -m tests.workflow.recorded RELEASE`` makes ``next`` the histories of a
release.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "histories"
NEXT = "next"
CHECKSUMS = "FROZEN"


def histories(folder: Path = FOLDER) -> list[Path]:
    """Histories of all releases, and of the next one."""
    return sorted(folder.glob("*/*.json.gz"))


def story_of(path: Path) -> str:
    """The name of its recipe."""
    return path.name.rpartition("-")[0]


def frozen(folder: Path = FOLDER) -> dict[str, str]:
    """Checksum of each history of a release, by release and file name."""
    lines = (folder / CHECKSUMS).read_text(encoding="utf-8").splitlines()
    return {name: checksum for checksum, _, name in (line.partition("  ") for line in lines)}


def changes(folder: Path = FOLDER) -> list[str]:
    """Changes of frozen histories: files that were rewritten, removed, or added to a release."""
    wanted = frozen(folder)
    found = {_name(path, folder): _checksum(path) for path in histories(folder) if path.parent.name != NEXT}
    rewritten = [f"{name}: rewritten" for name in wanted.keys() & found.keys() if wanted[name] != found[name]]
    gone = [f"{name}: gone" for name in wanted.keys() - found.keys()]
    added = [f"{name}: added, belongs to {NEXT}" for name in found.keys() - wanted.keys()]
    return sorted([*rewritten, *gone, *added])


def freeze(release: str, folder: Path = FOLDER) -> None:
    """Raise FileExistsError for a release that has its histories."""
    if (folder / release).exists():
        raise FileExistsError(f"histories of release {release} are frozen already")
    (folder / NEXT).rename(folder / release)
    with (folder / CHECKSUMS).open("a", encoding="utf-8") as checksums:
        for path in sorted((folder / release).glob("*.json.gz")):
            checksums.write(f"{_checksum(path)}  {_name(path, folder)}\n")


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    freeze(sys.argv[1])
