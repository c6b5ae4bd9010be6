"""Pools: the id at a path, and amounts of resources in tables."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cli.errors import Failed
from cli.wire import v0

if TYPE_CHECKING:
    from peloton.client import Client

ROOT_ID = "root"
UNITS = {"cpu": "cpu(cores)", "memory": "memory(MiB)", "disk": "disk(MiB)"}
"""The names of the kinds of resources in tables."""


def number(value: float) -> str:
    return "unlimited" if math.isinf(value) else f"{value:.2f}".rstrip("0").rstrip(".")


def pool_id_at(client: Client, path: str, what: str = "") -> str:
    """Return the id of a pool from the API. ``what`` names the pool in the error, such as "parent"."""
    request = v0.respool.LookupRequest(path=v0.respool.ResourcePoolPath(value=path))
    response = client.respools.LookupResourcePoolID(request)
    if response.id.value:
        return response.id.value
    problem = response.error.invalidPath.message or response.error.notFound.message or "no such pool"
    raise Failed(f"unable to find {what or 'resource pool'} {path}: {problem}")
