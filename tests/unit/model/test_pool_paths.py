"""Paths of pools."""

from __future__ import annotations

from peloton.model.ids import ROOT_POOL_ID, RespoolId
from peloton.model.resources import RESOURCE_KINDS
from peloton.model.respool import PoolResource, PoolSpec, pool_paths


def pool(pool_id: str, parent: str, name: str) -> PoolSpec:
    resources = tuple(PoolResource(kind, 0, 0, 1) for kind in RESOURCE_KINDS)
    return PoolSpec(RespoolId(pool_id), RespoolId(parent), name, resources)


def test_paths_follow_the_parents() -> None:
    """A path has the names from the root down, joined by slashes; the root is a slash."""
    paths = pool_paths([pool("b", "a", "maps"), pool("a", "root", "eng")])

    assert {"a": "/eng", "b": "/eng/maps", ROOT_POOL_ID: "/"} == paths


def test_pools_without_a_way_to_the_root_have_no_path() -> None:
    """Orphans and cycles have no path, and do not cause an endless loop."""
    paths = pool_paths([pool("a", "b", "x"), pool("b", "a", "y"), pool("c", "gone", "z")])

    assert {ROOT_POOL_ID: "/"} == paths
