"""The record of a release for the next one: its commit, its schema and its private wire, in ``NAME.json``.

Two neighbouring releases run together during an upgrade, on one database and over one wire. So the next release only
expands the schema and the wire of the last one. Parts that a release marks as unused may be removed by the next one:
``deprecated`` in a .proto file, ``info={"unused": True}`` at a column.

``python -m tests.unit.compatibility.release NAME`` records the checked-out commit.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor, FileDescriptor

from peloton.api.private import hostmgr_pb2, reason_pb2, resmgr_pb2
from services.storage import schema_version
from services.storage.tables import METADATA

FOLDER = Path(__file__).parent
WIRE: tuple[FileDescriptor, ...] = (hostmgr_pb2.DESCRIPTOR, reason_pb2.DESCRIPTOR, resmgr_pb2.DESCRIPTOR)


@dataclass(frozen=True)
class Release:
    name: str
    commit: str
    schema: str  # version
    tables: dict[str, dict[str, Any]]  # by name: key, unique, columns
    messages: dict[str, dict[str, str]]  # by name: type by number of a field
    methods: dict[str, str]  # by name: types


def latest() -> Release:
    newest = max(FOLDER.glob("*.json"), key=lambda path: [int(part) for part in path.stem.split(".")])
    return Release(**json.loads(newest.read_text(encoding="utf-8")))


def present(name: str = "next", commit: str = "") -> Release:
    """Return the record of the present code."""
    return Release(name, commit, schema_version.newest(), dict(_tables()), dict(_messages()), dict(_methods()))


def _tables() -> Iterator[tuple[str, dict[str, Any]]]:
    for table in METADATA.sorted_tables:
        columns = {}
        for column in table.columns:
            if not column.info.get("unused"):
                may_be_left_out = column.nullable or column.server_default is not None
                columns[column.name] = f"{column.type}{' optional' if may_be_left_out else ''}"
        unique = sorted(str(index.name) for index in table.indexes if index.unique)
        yield table.name, {"key": [c.name for c in table.primary_key], "unique": unique, "columns": columns}


def _messages() -> Iterator[tuple[str, dict[str, str]]]:
    for file in WIRE:
        for enum in file.enum_types_by_name.values():
            yield enum.full_name, {str(value.number): "value" for value in enum.values}
        for message in file.message_types_by_name.values():
            fields = [field for field in message.fields if not field.GetOptions().deprecated]
            yield message.full_name, {str(field.number): _type(field) for field in fields}


def _type(field: FieldDescriptor) -> str:
    """Return the type of a field; its name is not part of the wire."""
    kind = field.message_type or field.enum_type
    name = kind.full_name if kind else f"type {field.type}"
    return f"{'repeated ' if field.is_repeated else ''}{name}"


def _methods() -> Iterator[tuple[str, str]]:
    for file in WIRE:
        for service in file.services_by_name.values():
            for method in service.methods:
                if not method.GetOptions().deprecated:
                    yield method.full_name, f"{method.input_type.full_name} -> {method.output_type.full_name}"


def schema_faults(before: Release, now: Release) -> list[str]:
    """Return the reasons why statements of ``before`` would fail on the tables of ``now``."""
    faults = []
    for name, old in before.tables.items():
        new = now.tables.get(name)
        if new is None:
            faults.append(f"table {name} is gone")
            continue
        if old["key"] != new["key"]:
            faults.append(f"table {name} has another key")
        added = sorted(set(new["unique"]) - set(old["unique"]))
        faults += [f"table {name} has a new unique index {index}" for index in added]
        for column, kind in old["columns"].items():
            found = new["columns"].get(column, "gone")
            if found.removesuffix(" optional") != kind.removesuffix(" optional"):
                faults.append(f"column {name}.{column} was {kind}, is {found}")
            elif kind.endswith(" optional") and not found.endswith(" optional"):
                faults.append(f"column {name}.{column} is no longer optional")
        faults += [
            f"column {name}.{column} is new and neither nullable nor has a server's default"
            for column, kind in new["columns"].items()
            if column not in old["columns"] and not kind.endswith(" optional")
        ]
    return sorted(faults)


def wire_faults(before: Release, now: Release) -> list[str]:
    """Return the incompatibilities between roles of ``before`` and ``now``."""
    faults = []
    for name, old in before.messages.items():
        new = now.messages.get(name)
        if new is None:
            faults.append(f"{name} is gone")
        else:
            changed = {number: new.get(number, "gone") for number in old if new.get(number) != old[number]}
            faults += [f"{name}: number {number} was {old[number]}, is {what}" for number, what in changed.items()]
    for name, types in before.methods.items():
        if (found := now.methods.get(name, "gone")) != types:
            faults.append(f"{name} was {types}, is {found}")
    return sorted(faults)


def record(name: str) -> None:
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    text = json.dumps(asdict(present(name, head)), indent=1, sort_keys=True)
    (FOLDER / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    record(sys.argv[1])
