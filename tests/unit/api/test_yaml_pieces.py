"""Reading a file in pieces has the same result as reading it whole."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peloton.api.v0.job import job_pb2
from peloton.api.yaml_config import DEPTH_MAX, ConfigError, dump_message, load_message
from peloton.api.yaml_pieces import JobPieces
from tests.nightly import examples


def in_pieces(path: Path) -> job_pb2.JobConfig:
    with JobPieces(path) as pieces:
        found = job_pb2.JobConfig()
        found.CopyFrom(pieces.config)
        numbers = []
        for instance, config in pieces.instances():
            numbers.append(instance)
            found.instanceConfig[instance].CopyFrom(config)
    assert not pieces.config.instanceConfig
    assert sorted(numbers) == numbers
    return found


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.integers(0, 50), unique=True), st.text(max_size=5), st.booleans())
def test_the_same_job(instances: list[int], text: str, is_last: bool) -> None:
    """The job is the same for any instances at any place in the file."""
    job = job_pb2.JobConfig(instanceCount=60, owningTeam=text)
    own = job_pb2.JobConfig()
    for instance in instances:
        own.instanceConfig[instance].command.value = f"{text}{instance}"
        own.instanceConfig[instance].ports.add(name=text)
    parts = [dump_message(job), dump_message(own) if instances else ""]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.yaml"
        path.write_text("".join(parts if is_last else reversed(parts)))

        assert load_message(path, job_pb2.JobConfig) == in_pieces(path)


WRITTEN = {
    "an empty instance": "name: a\ninstanceConfig:\n  3:\n",
    "nothing about instances": "name: a\ninstanceConfig:\n",
    "flow style": '{"name": "a", "instanceConfig": {1: {"name": "x"}}, "instanceCount": 2}',
    "anchors": "instance_config:\n  1: &x {name: x}\n  0: *x\n  2: {<<: *x, controller: true}\nname: a\n",
    "merged in": "<<: {instanceconfig: {4: {name: y}}}\nname: a\n",
}


@pytest.mark.parametrize("text", WRITTEN.values(), ids=WRITTEN.keys())
def test_ways_to_write(tmp_path: Path, text: str) -> None:
    """Empty values, flow style and anchors have their usual meaning."""
    path = tmp_path / "job.yaml"
    path.write_text(text)

    assert load_message(path, job_pb2.JobConfig) == in_pieces(path)


BROKEN = {
    "empty": ("", "1:1: the file is empty"),
    "a list": ("- a\n", "1:1: expected a mapping (JobConfig), not a list"),
    "unknown key": (
        "instanceConfig:\n  7: {nam: x}\n",
        "2:7: instanceConfig[7]: unknown key 'nam' (did you mean 'name'?)",
    ),
    "twice": ("instanceConfig:\n  7: {name: x}\n  7: {name: y}\n", "3:3: instanceConfig: duplicate key '7'"),
    "no number": ("instanceConfig:\n  x: {name: y}\n", "2:3: instanceConfig: expected a whole number, not text ('x')"),
    "the map twice": (
        "instanceConfig: {0: {name: x}}\ninstance_config: {1: {name: y}}\n",
        "2:1: duplicate key 'instance_config'",
    ),
    "no map": ("instanceConfig: 3\n", "1:17: instanceConfig: expected a mapping from a whole number to TaskConfig, "),
    "not YAML": ("instanceConfig:\n  0: {name: x\n", "3:1: not YAML: did not find expected ',' or '}'"),
    "deep": (f"instanceConfig: {{0: {'[' * (DEPTH_MAX + 1)}", f"nested deeper than {DEPTH_MAX}"),
    "not UTF-8": ("name: \udcff", "1:1: not "),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_wrong_is_reported_with_its_place(tmp_path: Path, name: str) -> None:
    """The error has the same place as with a file that is read whole."""
    text, said = BROKEN[name]
    path = tmp_path / "job.yaml"
    path.write_bytes(text.encode(errors="surrogateescape"))

    with pytest.raises(ConfigError) as error:
        in_pieces(path)

    assert said in str(error.value)
