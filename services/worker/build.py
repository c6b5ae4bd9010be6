"""Build id of the installed code for Temporal: the release, and a hash of the code that workflows run."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import metadata
from pathlib import Path

PACKAGES = ("workflows", "activities", "peloton/lifecycle", "peloton/model")
"""Packages that determine the commands of workflows. Releases that do not differ in them have the same hash."""
ROOT = Path(__file__).parents[2]


@cache
def build_id(root: Path = ROOT) -> str:
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            digest.update(f"{path.relative_to(root).as_posix()}\n".encode())
            digest.update(path.read_bytes())
    return f"{metadata.version('peloton-temporal')}-{digest.hexdigest()[:12]}"
