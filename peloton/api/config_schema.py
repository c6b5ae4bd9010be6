"""JSON schemas of the YAML files that users write, for completion and validation in editors. They accept the files that
``yaml_config`` reads, within the bounds that the API checks.

Keys are suggested in lower case and accepted in any mix of cases and underscores, as on the command line. The schemas
are stricter in one way: a key needs a value. They use draft 7, which all editors support.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from google.protobuf.descriptor import FieldDescriptor

from peloton.api import config_bounds as bounds
from peloton.api.comments import comment_of
from peloton.api.respell import squash
from peloton.api.v0.job import job_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.yaml_config import INTEGER_RANGES, is_duration, is_map
from peloton.model.resources import EXTENDED_AMOUNT_MAX, EXTENDED_KINDS_MAX

Schema: TypeAlias = dict[str, Any]
# Two unrelated classes implement descriptors, and messages are typed as having either.
Field: TypeAlias = Any
Kind: TypeAlias = Any

DRAFT = "http://json-schema.org/draft-07/schema#"
MERGE_KEY = "^<<$"
EXTENSION = re.compile(r"\bExtension(: |\. ?|, )")
"""Marker in a .proto comment: the original API does not have the element."""


class File(NamedTuple):
    """A kind of YAML file. ``message`` is the protobuf message that the file is parsed into."""

    message: type[Any]
    title: str


FILES = {
    "job": File(job_pb2.JobConfig, "A job of Peloton (peloton job create)"),
    "service": File(stateless_pb2.JobSpec, "A service of Peloton (peloton job stateless create)"),
    "pool": File(respool_pb2.ResourcePoolConfig, "A resource pool of Peloton (peloton respool create)"),
}
"""Files by the names of their schemas."""


def _amounts(names: Mapping[str, str]) -> dict[str, Schema]:
    return {name: {"minimum": 0, "maximum": bounds.AMOUNTS_MAX[wire]} for name, wire in names.items()}


_TEXT: Schema = {"maxLength": bounds.TEXT_MAX}
_LABELS: Schema = {"maxItems": bounds.LABELS_MAX}
_COUNT: Schema = {"maximum": bounds.TASKS_PER_JOB_MAX}
_PATH: Schema = {"pattern": r"^(?!/)(?!(.*/)?\.{0,2}(/|$)).+$", "maxLength": bounds.VOLUME_PATH_MAX}
_MEBIBYTES: Schema = {"minimum": 1, "maximum": bounds.VOLUME_MB_MAX}
_EXTRA_CONTAINERS: Schema = {"maxItems": bounds.CONTAINERS_MAX - 1}
_CONTAINERS: Schema = {"maxItems": bounds.CONTAINERS_MAX}
_COMMAND: Schema = {"maxLength": bounds.COMMAND_BYTES_MAX}
_VARIABLE: Schema = {"pattern": "^[^=]+$"}
_PORT: Schema = {"maximum": bounds.PORT_MAX}
_AMOUNT: Schema = {"minimum": 0}
_PREFERENCES: Schema = {"maxItems": bounds.HOST_PREFERENCES_MAX}
_WEIGHT: Schema = {"minimum": 1, "maximum": bounds.PREFERENCE_WEIGHT_MAX}
_JOB = {"name": _TEXT, "owner": _TEXT, "description": _TEXT, "labels": _LABELS}
_EXTENDED_NAME: Schema = {"pattern": f"^{bounds.EXTENDED_NAME.pattern}$", "not": {"enum": list(bounds.RESERVED_NAMES)}}
_EXTENDED: Schema = {
    "maxProperties": EXTENDED_KINDS_MAX,
    "propertyNames": {"anyOf": [_EXTENDED_NAME, {"const": MERGE_KEY}]},
    "additionalProperties": {"type": "integer", "minimum": 0, "maximum": EXTENDED_AMOUNT_MAX},
}
_V0_AMOUNTS = _amounts({name: name for name in bounds.AMOUNTS_MAX}) | {"extended": _EXTENDED}
_V1_AMOUNTS = _amounts(
    {"cpu_limit": "cpuLimit", "mem_limit_mb": "memLimitMb", "disk_limit_mb": "diskLimitMb", "gpu_limit": "gpuLimit"}
) | {"extended": _EXTENDED}

RULES: dict[str, dict[str, Schema]] = {
    "v0.job.JobConfig": _JOB
    | {"owningTeam": _TEXT, "instanceCount": _COUNT, "type": {"not": {"enum": ["EXTERNAL", 100]}}},
    "v0.job.Placement": {"spread": {"maxItems": bounds.SPREADS_MAX}},
    "v0.job.Spread": {"label": _TEXT | {"minLength": 1}},
    "v0.job.GangClose": {"label": _TEXT | {"minLength": 1}},
    "v0.task.ResourceConfig": _V0_AMOUNTS,
    "v0.task.PortConfig": {"value": _PORT, "name": {"minLength": 1}},
    "v0.task.TaskConfig": {
        "otherContainers": _EXTRA_CONTAINERS,
        "initContainers": _EXTRA_CONTAINERS,
        "hostPreferences": _PREFERENCES,
    },
    "v0.task.HostPreference": {"weight": _WEIGHT},
    "v0.task.ContainerConfig": {"name": {"pattern": f"^{bounds.CONTAINER_NAME.pattern}$"}},
    "mesos.v1.CommandInfo": {"value": _COMMAND},
    "mesos.v1.Environment.Variable": {"name": _VARIABLE},
    "v1alpha.job.stateless.JobSpec": _JOB | {"owning_team": _TEXT, "instance_count": _COUNT},
    "v1alpha.job.stateless.Placement": {"spread": {"maxItems": bounds.SPREADS_MAX}},
    "v1alpha.job.stateless.Spread": {"label": _TEXT | {"minLength": 1}},
    "v1alpha.pod.ResourceSpec": _V1_AMOUNTS,
    "v1alpha.pod.PortSpec": {"value": _PORT},
    "v1alpha.pod.PersistentVolumeSpec": {"container_path": _PATH, "size_mb": _MEBIBYTES},
    "v1alpha.pod.PodSpec": {
        "containers": _CONTAINERS,
        "init_containers": _EXTRA_CONTAINERS,
        "host_preferences": _PREFERENCES,
    },
    "v1alpha.pod.HostPreference": {"weight": _WEIGHT},
    "v1alpha.pod.CommandSpec": {"value": _COMMAND},
    "v1alpha.pod.Environment": {"name": _VARIABLE},
    "v0.respool.ResourcePoolConfig": {"name": {"pattern": "^[^/]+$", "maxLength": bounds.POOL_NAME_MAX}},
    "v0.respool.ResourceConfig": {
        "kind": {"anyOf": [{"enum": list(bounds.POOL_KINDS)}, _EXTENDED_NAME]},
        "reservation": _AMOUNT,
        "limit": _AMOUNT,
        "share": _AMOUNT,
    },
    "v0.respool.ControllerLimit": {"maxPercent": {"maximum": bounds.CONTROLLER_PERCENT_MAX}},
    "v0.respool.SlackLimit": {"maxPercent": {"maximum": bounds.SLACK_PERCENT_MAX}},
}
"""Constraints of a field in addition to its type, by message (without ``peloton.api.``) and by name in the .proto file.
"""

REQUIRED = {
    "v0.job.Spread": ("label",),
    "v0.job.GangClose": ("label",),
    "v0.task.HostPreference": ("weight", "constraint"),
    "v0.task.PortConfig": ("name",),
    "v0.task.ContainerConfig": ("name",),
    "v1alpha.job.stateless.Spread": ("label",),
    "v1alpha.pod.HostPreference": ("weight", "constraint"),
    "v1alpha.pod.PersistentVolumeSpec": ("container_path", "size_mb"),
    "v1alpha.pod.Environment": ("name",),
    "v0.respool.ResourcePoolConfig": ("name",),
    "v0.respool.ResourceConfig": ("kind",),
}
"""Fields without which a message is refused, in addition to the fields that the .proto files call required."""


@cache
def schema_of(name: str) -> Schema:
    """Return the JSON schema of a kind of file, by its name in FILES."""
    file = FILES[name]
    definitions: dict[str, Schema] = {}
    pending = [file.message.DESCRIPTOR]
    while pending:
        kind = pending.pop()
        if _key(kind) in definitions:
            continue
        definitions[_key(kind)] = _message_schema(kind)
        for field in kind.fields:
            value = field.message_type.fields_by_name["value"] if is_map(field) else field
            if value.message_type is not None:
                pending.append(value.message_type)
    root = _ref(file.message.DESCRIPTOR)
    return {"$schema": DRAFT, "title": file.title, "allOf": [root], "definitions": definitions}


def _key(kind: Kind) -> str:
    return str(kind.full_name).removeprefix("peloton.api.")


def _ref(kind: Kind) -> Schema:
    return {"$ref": f"#/definitions/{_key(kind)}"}


def _message_schema(kind: Kind) -> Schema:
    rules = RULES.get(_key(kind), {})
    properties = {squash(field.name): _field_schema(field, rules.get(field.name, {})) for field in kind.fields}
    place = f"#/definitions/{_key(kind)}{'/anyOf/1' if is_duration(kind) else ''}/properties"
    spellings: Schema = {_spelling_pattern(name, but=name): {"$ref": f"{place}/{name}"} for name in properties}
    schema: Schema = {
        "type": "object",
        "properties": properties,
        "patternProperties": spellings | {MERGE_KEY: {}},
        "additionalProperties": False,
    }
    if text := _describe(kind.full_name):
        schema["description"] = text
    if required := [field for field in kind.fields if field.is_required or field.name in REQUIRED.get(_key(kind), ())]:
        schema["allOf"] = [_require_key(field) for field in required]
    if is_duration(kind):
        return {"anyOf": [{"type": "integer"}, schema]}
    return schema


def _spelling_pattern(name: str, but: str = "") -> str:
    """Return the pattern for ``name`` in any mix of cases and underscores, except the suggested spelling ``but``."""
    return f"^{f'(?!{but}$)' if but else ''}_*{''.join(_any_case_pattern(letter) for letter in name)}$"


def _any_case_pattern(letter: str) -> str:
    return f"[{letter}{letter.upper()}]_*" if letter.isalpha() else f"{letter}_*"


def _require_key(field: Field) -> Schema:
    """Require the key in any spelling. The suggested spelling is the first alternative, which editors report as
    missing."""
    name = squash(field.name)
    has_other_spelling = {"not": {"propertyNames": {"not": {"pattern": _spelling_pattern(name)}}}}
    return {"anyOf": [{"required": [name]}, has_other_spelling]}


def _field_schema(field: Field, rule: Schema) -> Schema:
    if is_map(field):
        schema = _map_schema(field)
    elif field.is_repeated and field.type != FieldDescriptor.TYPE_BYTES:
        schema = {"type": "array", "items": _value_schema(field)}
    else:
        schema = _value_schema(field)
    if rule:
        schema = schema | rule if "anyOf" not in schema else {"allOf": [schema, rule]}
    if text := _describe(field.full_name):
        schema = schema | {"description": text}
    return schema | ({"deprecated": True} if field.GetOptions().deprecated else {})


def _describe(name: str) -> str:
    """Return the comment of an element in its .proto file, without the marker of additions to the original API."""
    text = EXTENSION.sub("", comment_of(name)).strip()
    return text[:1].upper() + text[1:]


def _map_schema(field: Field) -> Schema:
    """Return the schema of a map, in which a key without a value stands for an empty message."""
    key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
    schema: Schema = {"type": "object", "additionalProperties": _value_schema(value)}
    if value.message_type is not None:
        schema["additionalProperties"] = {"anyOf": [_value_schema(value), {"type": "null"}]}
    if key.cpp_type in INTEGER_RANGES:
        schema["propertyNames"] = {"pattern": "^([0-9]+|<<)$"}
    return schema


def _value_schema(field: Field) -> Schema:
    if field.message_type is not None:
        return _ref(field.message_type)
    if field.type == FieldDescriptor.TYPE_ENUM:
        return _enum_schema(field.enum_type)
    if field.type == FieldDescriptor.TYPE_STRING:
        return {"type": ["string", "number", "boolean"]}  # 8080 and yes are read as text
    if field.type == FieldDescriptor.TYPE_BOOL:
        return {"type": "boolean"}
    if field.type == FieldDescriptor.TYPE_BYTES:
        byte = {"type": "integer", "minimum": 0, "maximum": 255}
        return {"anyOf": [{"type": ["string", "number", "boolean"]}, {"type": "array", "items": byte}]}
    if field.cpp_type in INTEGER_RANGES:
        low, high = INTEGER_RANGES[field.cpp_type]
        return {"type": "integer", "minimum": low, "maximum": high}
    return {"type": "number"}


def _enum_schema(enum: Kind) -> Schema:
    """Return the schema of an enum: names are suggested as written, and accepted in any mix of cases and underscores;
    numbers are accepted as well."""
    names = [value.name for value in enum.values]
    spellings = "|".join(_spelling_pattern(squash(name)) for name in names)
    numbers = [{"type": "integer", "minimum": low, "maximum": high} for low, high in _find_runs(enum.values_by_number)]
    comments = {name: _describe(f"{enum.full_name}.{name}") for name in names}
    descriptions = [f"{name}: {text}" for name, text in comments.items() if text]
    schema: Schema = {"anyOf": [{"enum": names}, {"type": "string", "pattern": spellings}, *numbers]}
    return schema | ({"description": " ".join(descriptions)} if descriptions else {})


def _find_runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and last of each run of consecutive numbers. Editors suggest the values of an enumeration, but
    not those of a range."""
    runs: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs
