"""Recorded and actual JSON made comparable: names that differ from run to run become placeholders."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import orjson

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_OFFER = re.compile(r"M-O\d+")
_WORK_DIR = re.compile(r"/var/lib/mesos/s\d+/(agent\d+|master)")

# Lists whose order means nothing (the real master's own varies).
_UNORDERED = frozenset(
    (
        "resources", "total_resources", "allocated_resources", "offered_resources", "capabilities", "attributes",
        "agents", "frameworks", "completed_frameworks", "tasks", "completed_tasks", "unreachable_tasks",
        "offers", "roles", "draining_machines",
    )
)  # fmt: skip
_TIMES = frozenset(
    ("timestamp", "registered_time", "reregistered_time", "start_time", "elected_time", "unregistered_time", "mtime")
)


def _order(item: Any) -> tuple[str, bytes]:
    """Named things by name, so that one difference in a list does not shift the others."""
    name = ""
    if isinstance(item, dict):
        info = item.get("framework_info") or item.get("agent_info") or item
        for key in ("task_id", "id", "hostname", "name"):
            if key in info:
                name = str(info[key])
                break
    return name, orjson.dumps(item, option=orjson.OPT_SORT_KEYS)


class Normaliser:
    """`strings` maps names of this side (ids, paths) to placeholders, `ports` port numbers to names."""

    def __init__(self, strings: dict[str, str], ports: dict[int, str]) -> None:
        self.strings = strings
        self.ports = ports

    def text(self, value: str) -> str:
        # Longest first: an agent id contains the master id.
        for name in sorted(self.strings, key=len, reverse=True):
            if name in value:
                value = value.replace(name, self.strings[name])
        for port, name in self.ports.items():
            value = value.replace(f"127.0.0.1:{port}", f"127.0.0.1:<{name}>")
            value = value.replace(f"localhost:{port}", f"localhost:<{name}>")
        value = _WORK_DIR.sub("<work_dir>", value)
        value = _OFFER.sub("M-O#", value)
        return _UUID.sub("@", value)

    def value(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: self.value(item, name) for name, item in value.items()}
        if isinstance(value, list):
            items = [self.value(item) for item in value]
            if key in _UNORDERED:
                items.sort(key=_order)
            return items
        if isinstance(value, str):
            if key in ("uuid", "status_update_uuid") or (key == "value" and len(value) == 24 and value.endswith("==")):
                return "<uuid>"
            return self.text(value)
        if isinstance(value, bool) or value is None:
            return value
        if key == "port":
            return f"<{self.ports.get(value, value)}>"
        if key == "executor_pid":
            return "<pid>"
        if key in _TIMES or (key == "nanoseconds" and value > 1e17):
            return "<time>"
        return value


def difference(recorded: Any, actual: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(path, recorded, actual) of each leaf that differs; a missing side is '<absent>'."""
    if isinstance(recorded, dict) and isinstance(actual, dict):
        for key in sorted(recorded.keys() | actual.keys()):
            yield from difference(
                recorded.get(key, "<absent>"), actual.get(key, "<absent>"), f"{path}.{key}" if path else key
            )
    elif isinstance(recorded, list) and isinstance(actual, list) and len(recorded) == len(actual):
        for index, (left, right) in enumerate(zip(recorded, actual, strict=True)):
            yield from difference(left, right, f"{path}[{index}]")
    elif recorded != actual:
        yield path, recorded, actual
