"""Reads a job's file that does not fit in memory: instance configurations one by one, in the format of ``yaml_config``.

The configurations are stored in a temporary file as messages, so that a fault anywhere in the file is reported before
anything is sent, and so that they are returned sorted by instance.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml
from yaml.composer import Composer

from peloton.api.respell import squash
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.yaml_config import DEPTH_MAX, LOADER, TAG, ConfigError, MessageReader, error_at, is_null
from peloton.model.text import quote

HEAVY_FILE_BYTES = 64 * 2**20
"""Size in bytes up to which files are read at once. Composed YAML takes some twenty times as much memory as the file.
"""

_INSTANCES = squash("instanceConfig")


class JobPieces:
    """Context manager: ``with JobPieces(path) as pieces`` offers ``pieces.config`` without instances, and
    ``pieces.instances()``.

    Raises ConfigError for every fault of the content, and OSError if the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.config = job_pb2.JobConfig()
        self._kept = tempfile.TemporaryFile()  # noqa: SIM115, open as long as this
        self._places: dict[int, tuple[int, int]] = {}  # instance -> position of its message
        try:
            with path.open("rb") as stream:
                self._read(stream, str(path))
            self._kept.flush()
        except BaseException:
            self._kept.close()
            raise

    def __enter__(self) -> JobPieces:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kept.close()

    def instances(self) -> Iterator[tuple[int, task_pb2.TaskConfig]]:
        """Yield the instances sorted by number; repeatable."""
        for instance in sorted(self._places):
            start, length = self._places[instance]
            # pread keeps no position, so several iterations can read at the same time.
            yield instance, task_pb2.TaskConfig.FromString(os.pread(self._kept.fileno(), length, start))

    def _read(self, stream: Any, name: str) -> None:
        try:
            self._read_document(_Events(stream, name), name)
        except UnicodeDecodeError as error:
            raise ConfigError(name, 1, 1, "not UTF-8 text") from error
        except yaml.reader.ReaderError as error:
            raise ConfigError(name, 1, 1, f"not YAML: {error.reason}") from error
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            raise error_at(mark, name, f"not YAML: {error.problem or error.context}") from error

    def _read_document(self, events: Any, name: str) -> None:
        """Read the top mapping, and store its instances one by one."""
        events.get_event()  # start of the stream
        if events.check_event(yaml.StreamEndEvent):
            raise ConfigError(name, 1, 1, "the file is empty")
        events.get_event()  # start of the document
        if not events.check_event(yaml.MappingStartEvent):
            MessageReader(name).read_message(events.next_node(), self.config, where="", depth=0)  # raises the error
            return
        start = events.get_event()
        rest = yaml.MappingNode(f"{TAG}map", [], start.start_mark, start.end_mark)
        while not events.check_event(yaml.MappingEndEvent):
            key = events.next_node()
            if squash(str(key.value)) == _INSTANCES and events.check_event(yaml.MappingStartEvent):
                self._read_instances(events, name, key)
            else:
                rest.value.append((key, events.next_node()))
        MessageReader(name).read_message(rest, self.config, where="", depth=0)
        for instance in list(self.config.instanceConfig):  # added by merge keys
            if instance not in self._places:
                self._keep(instance, self.config.instanceConfig[instance])
        self.config.ClearField("instanceConfig")

    def _read_instances(self, events: Any, name: str, where: yaml.Node) -> None:
        field: Any = job_pb2.JobConfig.DESCRIPTOR.fields_by_name["instanceConfig"]
        number = field.message_type.fields_by_name["key"]
        reader = MessageReader(name)
        if self._places:
            raise reader.fail(where, "", f"duplicate key {quote(where.value)}")
        events.get_event()
        while not events.check_event(yaml.MappingEndEvent):
            key = events.next_node()
            instance = reader.read_scalar(key, number, str(where.value))
            if instance in self._places:
                raise reader.fail(key, str(where.value), f"duplicate key {quote(str(instance))}")
            value, config = events.next_node(), task_pb2.TaskConfig()
            reader.node_count = 0  # bounds the aliases of each instance
            if not is_null(value):
                reader.read_message(value, config, f"{where.value}[{instance}]", depth=1)
            self._keep(instance, config)
        events.get_event()

    def _keep(self, instance: int, config: task_pb2.TaskConfig) -> None:
        data = config.SerializeToString()
        self._places[instance] = (self._kept.tell(), len(data))
        self._kept.write(data)


class _Events(Composer, LOADER):  # type: ignore[misc]
    """Composes one node at a time from parsed events; anchors are valid across nodes."""

    def __init__(self, stream: Any, name: str) -> None:
        LOADER.__init__(self, stream)
        Composer.__init__(self)
        self._name = name
        self._depth = 0

    def next_node(self) -> yaml.Node:
        node: yaml.Node = self.compose_node(None, None)
        return node

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise error_at(self.peek_event().start_mark, self._name, f"nested deeper than {DEPTH_MAX}")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node
