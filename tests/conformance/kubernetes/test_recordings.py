"""An emulated Kubernetes answers as a real one did in the recordings, and a real one still does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.conformance.kubernetes.differences import EMULATED
from tests.conformance.kubernetes.emulated import EmulatedKubernetes
from tests.conformance.kubernetes.normalise import differences
from tests.conformance.kubernetes.recording import FOLDER, load, play
from tests.conformance.kubernetes.scenarios.all import SCENARIOS
from tests.kubernetes.client import Json, Login
from tests.kubernetes.fixtures import REAL_KUBERNETES

EMULATED_KUBERNETES = pytest.mark.xdist_group("recordings")
AT_ONCE = 4
"""Scenarios mostly wait, for controllers above all."""
Transcripts = dict[str, "Future[list[Json]]"]
Found = tuple[str, str, str]
"""Step, path in it, both values."""


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transcripts]:
    with EmulatedKubernetes(tmp_path_factory.mktemp("kubernetes")) as cluster:
        yield from _play_all(SCENARIOS, cluster.login)


@pytest.fixture(scope="module")
def real(kubernetes_login: Login) -> Iterator[Transcripts]:
    yield from _play_all(SCENARIOS, kubernetes_login)


def _play_all(names: Iterable[str], login: Login) -> Iterator[Transcripts]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(play, SCENARIOS[name], login) for name in names}


def _compare(name: str, transcript: list[Json]) -> list[Found]:
    expected = load(name)
    assert [step["do"] for step in expected] == [step["do"] for step in transcript]
    return [
        (step["do"], path, values)
        for step, found in zip(expected, transcript, strict=True)
        for path, values in differences(step, found).items()
    ]


def _none(found: list[Found]) -> None:
    assert not found, "".join(f"\n{step}: {path}: {values}" for step, path, values in found)


@EMULATED_KUBERNETES
@pytest.mark.parametrize("name", SCENARIOS)
def test_emulated(name: str, emulated: Transcripts) -> None:
    """The emulated one differs from the recording only where that is accepted."""
    found = _compare(name, emulated[name].result())

    _none([item for item in found if not any(entry.covers(name, item[0], item[1]) for entry in EMULATED)])


@EMULATED_KUBERNETES
def test_every_accepted_difference_is_needed(emulated: Transcripts) -> None:
    """An entry of the table that nothing uses is a difference that is gone."""
    found = [(name, *item) for name, done in emulated.items() for item in _compare(name, done.result())]

    assert [] == [entry for entry in EMULATED if not any(entry.covers(*item[:3]) for item in found)]


@REAL_KUBERNETES
@pytest.mark.parametrize("name", SCENARIOS)
def test_real(name: str, real: Transcripts) -> None:
    """The real one answers as it did when it was recorded."""
    _none(_compare(name, real[name].result()))


def test_every_recording_is_of_a_scenario() -> None:
    """None is left over, and none lacks."""
    assert sorted(SCENARIOS) == sorted(path.stem for path in FOLDER.glob("*.jsonl"))
