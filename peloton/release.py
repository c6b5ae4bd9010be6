"""Release that this program is of."""

from __future__ import annotations


def read_version() -> str:
    from importlib import metadata

    try:
        return metadata.version("peloton-temporal")
    except metadata.PackageNotFoundError:
        return "(not installed: runs from its source folder)"
