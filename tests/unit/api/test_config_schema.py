"""The JSON schemas of job, service and pool files accept and refuse the same files as the command line."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from cli.main import peloton
from cli.schema import FILES as SCHEMAS
from peloton.api import convert_v1_spec
from peloton.api.config_bounds import AMOUNTS_MAX
from peloton.api.config_schema import FILES, REQUIRED, RULES, schema_of
from peloton.api.yaml_config import ConfigError, dump_message, load_message
from peloton.errors import InvalidArgument
from services.api.validation import job_faults
from services.resmgr.pool_rules import check_values
from tests.nightly import examples
from tests.unit.cli.test_examples import (
    DATABASES,
    DEPLOYMENTS,
    EXAMPLES,
    FAILOVER,
    HOSTS,
    OF_FRAMEWORKS,
    OF_KUBECTL,
    POOLS,
    ROOT,
    SERVICES,
    SIMULATIONS,
)
from tests.unit.web.messages import messages

VALIDATORS = {name: Draft7Validator(schema_of(name)) for name in FILES}
FILES_OF_USERS = {
    path: "pool" if path in POOLS else "service" if path in [*SERVICES, *FAILOVER, *DATABASES] else "job"
    for path in EXAMPLES
    if path not in [*HOSTS, *SIMULATIONS, *DEPLOYMENTS, *OF_FRAMEWORKS, *OF_KUBECTL]
}


def data_of(text: str) -> Any:
    """Parse a file like an editor: keys are strings, and so is every value but numbers, booleans and nulls."""
    return _plain(yaml.safe_load(text))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)


def faults(name: str, text: str) -> list[str]:
    return [error.message for error in VALIDATORS[name].iter_errors(data_of(text))]


def refusal(name: str, text: str) -> str:
    """Return the fault that the command line finds, or else the api without knowledge of a cluster."""
    try:
        message: Any = load_message(text, FILES[name].message)
        if name == "pool":
            check_values(message)
            return "" if message.name and "/" not in message.name else "name"
        config = message if name == "job" else convert_v1_spec.job_config(message)
        return job_faults(config, None).message()
    except (ConfigError, InvalidArgument) as error:
        return str(error)


@pytest.mark.parametrize("name", FILES)
def test_the_schemas_are_sound(name: str) -> None:
    """Each schema is a valid one of draft 7, and each reference resolves."""
    schema = schema_of(name)
    Draft7Validator.check_schema(schema)

    references = [value["$ref"].split("/")[2:] for value in _objects(schema) if "$ref" in value]

    assert [] == [steps for steps in references if not _leads(schema["definitions"], steps)]


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(item)


def _leads(at: Any, steps: list[str]) -> bool:
    for step in steps:
        if isinstance(at, list):
            at = {str(index): item for index, item in enumerate(at)}
        if step not in at:
            return False
        at = at[step]
    return True


def test_every_rule_is_about_a_field() -> None:
    """Each rule names a field of a message in one of the schemas."""
    kinds = {key for name in FILES for key in schema_of(name)["definitions"]}
    fields = {key: set(schema["properties"]) for name in FILES for key, schema in _definitions(name)}

    assert set(RULES) | set(REQUIRED) <= kinds
    for kind, rules in [*RULES.items(), *REQUIRED.items()]:
        assert {rule.replace("_", "").lower() for rule in rules} <= fields[kind]


def _definitions(name: str) -> Iterator[tuple[str, Any]]:
    for key, schema in schema_of(name)["definitions"].items():
        yield key, schema["anyOf"][-1] if "anyOf" in schema else schema


@pytest.mark.parametrize(("path", "name"), FILES_OF_USERS.items())
def test_every_example_fits(path: str, name: str) -> None:
    """Each example is valid for its own kind of file and invalid for another kind."""
    text = (ROOT / path).read_text()

    assert [] == faults(name, text)
    assert [] != faults("pool" if name != "pool" else "job", text)


@given(data=st.data(), name=st.sampled_from(sorted(FILES)))
@settings(max_examples=examples(300), deadline=None, suppress_health_check=list(HealthCheck))
def test_any_message_fits_but_for_its_values(data: st.DataObject, name: str) -> None:
    """A message written as a file has the keys and types of the schema; only bounds may refuse it."""
    text = dump_message(data.draw(messages(FILES[name].message.DESCRIPTOR)))
    kinds = {kind for error in VALIDATORS[name].iter_errors(data_of(text)) for kind in _kinds_of(error)}

    assert set() == kinds & {"type", "additionalProperties", "propertyNames"}


def _kinds_of(error: Any) -> Iterator[str]:
    if error.context:
        best = min(([*_kinds_of(below)] for below in error.context), key=lambda kinds: "type" in kinds)
        yield from best
    else:
        yield error.validator


VALUES = [
    *("", "x", "BATCH", "batch", "7", "a/b", 0, 1, 7, -1, 2**31, 2**40, 2**64, 1.5, -0.5, 1e300, True, False),
    *([], [7], ["x"], [{}], {}, {"x": 1}, {"7": {}}, {"name": "x"}),
]


@given(data=st.data(), path=st.sampled_from(sorted(FILES_OF_USERS)))
@settings(max_examples=examples(500), deadline=None, suppress_health_check=list(HealthCheck))
def test_a_schema_never_refuses_what_would_be_taken(data: st.DataObject, path: str) -> None:
    """Any example with any value that violates the schema is refused by the command line or by the api; a file that
    the command line cannot read violates the schema."""
    name = FILES_OF_USERS[path]
    content = copy.deepcopy(data_of((ROOT / path).read_text()))
    places = [*_places(content)]
    holder, key = data.draw(st.sampled_from(places))
    if isinstance(holder, dict) and data.draw(st.booleans()):
        del holder[key]
        key = data.draw(st.sampled_from(["unknown", key.upper(), f"{key[:1]}_{key[1:]}"]))
    holder[key] = data.draw(st.sampled_from(VALUES))
    text = yaml.safe_dump(_number_keys(content))

    found = faults(name, text)

    assert not found or refusal(name, text), found
    if not found:
        load_message(text, FILES[name].message)


def _number_keys(value: Any) -> Any:
    """Return the content with integer keys, as in a file."""
    if isinstance(value, dict):
        return {int(key) if key.isdigit() else key: _number_keys(item) for key, item in value.items()}
    return [_number_keys(item) for item in value] if isinstance(value, list) else value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, key
        if isinstance(item, dict | list):
            yield from _places(item)


JOB = """
name: a
instancecount: 2
defaultconfig:
  command: {value: "true"}
"""
SERVICE = """
name: a
instancecount: 2
defaultspec:
  containers: [{name: main, entrypoint: {value: "true"}}]
"""
POOL = """
name: a
resources: [{kind: cpu, reservation: 1, limit: 2, share: 1}]
"""


def edit_text(text: str, edit: Callable[[Any], None]) -> str:
    content = yaml.safe_load(text)
    edit(content)
    return yaml.safe_dump(content)


def put(*path: Any) -> Callable[[Any, Any], None]:
    def into(content: Any, value: Any) -> None:
        for step in path[:-1]:
            content = content.setdefault(step, {}) if isinstance(content, dict) else content[step]
        content[path[-1]] = value

    return into


CPU = AMOUNTS_MAX["cpuLimit"]
BOUNDS: list[tuple[str, str, tuple[Any, ...], Any, Any]] = [
    ("job", JOB, ("instancecount",), 100_000, 100_001),
    ("job", JOB, ("name",), "x" * 4_000, "x" * 4_001),
    ("job", JOB, ("labels",), [{"key": "k"}] * 1_000, [{"key": "k"}] * 1_001),
    ("job", JOB, ("type",), "service", "EXTERNAL"),
    ("job", JOB, ("type",), 0, 7),
    ("job", JOB, ("placement", "spread"), [{"label": "rack"}], [{"maxskew": 2}]),
    ("job", JOB, ("placement", "spread"), [{"label": f"{n}"} for n in range(8)], [{"label": f"{n}"} for n in range(9)]),
    ("job", JOB, ("defaultconfig", "resource", "cpulimit"), CPU, CPU * 2),
    ("job", JOB, ("defaultconfig", "resource", "cpulimit"), 0, -1),
    ("job", JOB, ("defaultconfig", "ports"), [{"name": "a", "value": 65_535}], [{"name": "a", "value": 65_536}]),
    ("job", JOB, ("defaultconfig", "ports"), [{"name": "a", "value": 1}], [{"value": 1}]),
    ("job", JOB, ("defaultconfig", "command", "value"), "x" * 131_071, "x" * 131_072),
    (
        *("job", JOB, ("defaultconfig", "command", "environment", "variables")),
        [{"name": "A", "value": "="}],
        [{"name": "A=", "value": "b"}],
    ),
    (
        *("job", JOB, ("defaultconfig", "container")),
        {"type": "MESOS", "volumes": [{"mode": "RO", "containerpath": "a"}]},
        {"type": "MESOS", "volumes": [{"mode": "RO"}]},
    ),
    (
        *("job", JOB, ("defaultconfig", "othercontainers")),
        [{"name": "a", "command": {"value": "true"}}],
        [{"name": "A", "command": {"value": "true"}}],
    ),
    (
        *("job", JOB, ("defaultconfig", "initcontainers")),
        [{"name": f"a{n}", "command": {}} for n in range(19)],
        [{"name": f"a{n}", "command": {}} for n in range(20)],
    ),
    ("service", SERVICE, ("instancecount",), 100_000, 100_001),
    ("service", SERVICE, ("defaultspec", "volume"), {"containerpath": "a/b", "sizemb": 1}, {"containerpath": "a/b"}),
    *(
        (
            "service",
            SERVICE,
            ("defaultspec", "volume"),
            {"containerPath": "a", "sizemb": 1},
            {"containerpath": path, "sizemb": 1},
        )
        for path in ("/a", "a//b", "./a", "a/..", "a/", "", ".", "x" * 201)
    ),
    (
        "service",
        SERVICE,
        ("defaultspec", "volume"),
        {"containerpath": ".a", "sizemb": 7},
        {"containerpath": "a", "sizemb": 0},
    ),
    ("service", SERVICE, ("defaultspec", "containers", 0, "resource", "cpulimit"), CPU, -1),
    ("service", SERVICE, ("defaultspec", "containers", 0, "environment"), [{"name": "A"}], [{"name": ""}]),
    ("service", SERVICE, ("placement", "spread"), [{"label": "rack"}], [{"label": ""}]),
    ("pool", POOL, ("name",), "a", "a/b"),
    ("pool", POOL, ("resources", 0, "kind"), "disk", "disc"),
    ("pool", POOL, ("resources", 0, "reservation"), 0, -1),
    ("pool", POOL, ("resources", 0, "share"), 0, -1),
    ("pool", POOL, ("policy",), "priority_fifo", "fifo"),
    ("pool", POOL, ("slacklimit", "maxpercent"), 10_000, 10_001),
]


@pytest.mark.parametrize(("name", "text", "path", "most", "more"), BOUNDS, ids=range(len(BOUNDS)))
def test_bounds_are_those_of_the_api(name: str, text: str, path: tuple[Any, ...], most: Any, more: Any) -> None:
    """The schema and the api accept a file at the bound and refuse it above."""
    kept = edit_text(text, lambda content: put(*path)(content, most))
    broken = edit_text(text, lambda content: put(*path)(content, more))

    assert ([], "") == (faults(name, kept), refusal(name, kept))
    assert [] != faults(name, broken)
    assert "" != refusal(name, broken)


@pytest.mark.parametrize(
    "key", ["instancecount", "instanceCount", "instance_count", "INSTANCE_COUNT", "_instanceCount_"]
)
def test_keys_may_be_spelled_in_any_way(key: str) -> None:
    """The schema accepts every spelling of a key that the command line accepts, and refuses a misspelled one."""
    assert [] == faults("job", f"{key}: 2\n")
    assert [] != faults("job", f"{key}: x\n")
    assert [] != faults("job", f"{key}s: 2\n")


@pytest.mark.parametrize(
    ("text", "is_taken"),
    [
        ("instanceconfig: {3: {name: odd}, 4: }", True),
        ("instanceconfig: {x: {name: odd}}", False),
        ("defaultconfig: &d {name: a}\ninstanceconfig: {0: {<<: *d}}", True),
        ("name: 8080\ndefaultconfig: {command: {value: 1.5}}", True),
        ("name: [a]", False),
        ("sla: {preemptible: 'yes'}", False),
        ("sla: {priority: '1'}", False),
        ("name:", False),
    ],
)
def test_values_are_taken_as_the_command_line_takes_them(text: str, is_taken: bool) -> None:
    """The schema accepts the command line's values, except a key without a value, which the command line ignores."""
    assert is_taken == (faults("job", text) == [])
    if text != "name:":
        assert is_taken == _is_read(text)


def _is_read(text: str) -> bool:
    try:
        load_message(text, FILES["job"].message)
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize("name", FILES)
def test_the_command_prints_the_schema(name: str) -> None:
    """The command prints the schema of each kind of file."""
    printed = CliRunner().invoke(peloton, ["schema", name])

    assert 0 == printed.exit_code, printed.output
    assert schema_of(name) == json.loads(printed.stdout)
    assert tuple(FILES) == SCHEMAS


def test_fields_are_explained() -> None:
    """The schema's descriptions are the comments of the .proto files."""
    job = schema_of("job")["definitions"]["v0.job.JobConfig"]

    assert (
        "Per instance number; merged field by field over defaultConfig."
        == job["properties"]["instanceconfig"]["description"]
    )
    assert "What the owner asks for." == job["description"]
