"""The version of the installed code, as Temporal knows this worker: the release, and a hash of what workflows run."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import metadata
from pathlib import Path

PACKAGES = ("workflows", "activities", "peloton/lifecycle", "peloton/model")
"""What decides which commands a workflow gives. Releases that differ only elsewhere are one version."""
ROOT = Path(__file__).parents[2]


@cache
def build_id(root: Path = ROOT) -> str:
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            digest.update(f"{path.relative_to(root).as_posix()}\n".encode())
            digest.update(path.read_bytes())
    return f"{metadata.version('peloton-temporal')}-{digest.hexdigest()[:12]}"
