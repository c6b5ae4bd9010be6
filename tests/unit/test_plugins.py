"""Plugins of another distribution are found, loaded and used. The examples are such a distribution."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from peloton.errors import InvalidArgument
from peloton.model.ids import JobId
from peloton.model.pod import Strategy
from peloton.scheduling.eviction import DEFAULT_POLICY, POLICIES, HeldRun
from peloton.scheduling.gangs import GangRun
from peloton.scheduling.placement import place
from peloton.scheduling.recipes import RECIPES
from services.cluster_drivers import DRIVERS, cluster_driver_of
from services.hostmgr.driver import HostLaunch
from services.plugins import GROUP, load_plugins
from services.settings import Settings
from tests.unit.scheduling.test_placement import JOB, host, lease, shape, singles, where

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "plugins"


@pytest.fixture
def registries() -> Iterator[None]:
    """Restore the registries after the test."""
    registries: tuple[dict[Any, Any], ...] = (RECIPES, POLICIES, DRIVERS)
    saved = [dict(registry) for registry in registries]
    yield
    for registry, values in zip(registries, saved, strict=True):
        registry.clear()
        registry.update(values)


def install(folder: Path, points: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Make an installed distribution with these entry points."""
    info = folder / "plugin_examples-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin-examples\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *(f"{k} = {v}" for k, v in points.items())]))
    monkeypatch.syspath_prepend(str(folder))


@pytest.fixture
def examples(tmp_path: Path, registries: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    project = tomllib.loads((EXAMPLES / "pyproject.toml").read_text())["project"]
    install(tmp_path, project["entry-points"][GROUP], monkeypatch)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return load_plugins()


def test_all_examples_are_loaded(examples: list[str]) -> None:
    """Each entry point is called, in the order of the names."""
    assert ["audit", "by-name", "newest-first"] == examples


def test_without_plugins_nothing_is_loaded() -> None:
    """Peloton brings no plugin."""
    assert [] == load_plugins()


def test_a_plugin_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the name of the entry point, and its target."""
    install(tmp_path, {"broken": "no_such_module:register"}, monkeypatch)

    with pytest.raises(InvalidArgument, match=r"plugin broken \(no_such_module:register\) failed: .*no_such_module"):
        load_plugins()


def test_pods_are_placed_by_the_recipe(registries: None, request: pytest.FixtureRequest) -> None:
    """The strategy goes to the host with the least free resources, and by the plugin to the first by name."""
    pods = singles(shape(1, 10, strategy=Strategy.DEFRAGMENT), 1)
    hosts = lease(host("b", cpu=1), host("a", cpu=4))
    assert {"b": [0]} == where(place(JOB, pods, hosts))

    request.getfixturevalue("examples")

    assert {"a": [0]} == where(place(JOB, pods, hosts))


def test_victims_are_chosen_by_the_policy(examples: list[str]) -> None:
    """The later gang is evicted first although its priority is higher."""
    old, new = (
        HeldRun(1, GangRun(JobId(name), 0, 1, 1, (1000, 0, 0, 0), priority, seq), is_launched=True)
        for name, priority, seq in (("old", 0, 1), ("new", 9, 2))
    )

    assert [new, old] == sorted([old, new], key=POLICIES[DEFAULT_POLICY].order)


def test_a_driver_is_chosen_by_the_scheme(examples: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver wraps that of Mesos at the address, and passes launches on."""
    unused: Any = object()
    driver: Any = cluster_driver_of(Settings(mesos="audit://localhost:5050"), unused, unused, str)()
    launched: list[list[HostLaunch]] = []

    def launch(launches: list[HostLaunch]) -> list[object]:
        launched.append(launches)
        return []

    monkeypatch.setattr(driver._driver, "launch", launch)

    assert "mesos" == driver.capabilities.kind
    assert [] == driver.launch([])
    assert [[]] == launched
