"""Reads the YAML files of users into messages of the API, and writes messages as YAML.

The keys are the field names of the message, in any mix of cases and underscores: ``memlimitmb``, ``memLimitMb`` and
``mem_limit_mb`` are the same key. Enums are given by name or number, maps of instances by instance number. Every fault
is refused with its place in the file, because a job that starts with half of its configuration is worse than one that
does not start.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import yaml
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from peloton.api.respell import squash
from peloton.errors import InvalidArgument
from peloton.files import FileTooLarge, read_file
from peloton.model.text import MULTI_LINE, escape, is_printable, quote

MessageT = TypeVar("MessageT", bound=Message)
# Two unrelated classes implement descriptors, and messages are typed as having either.
Field: TypeAlias = Any

# The largest job has 100,000 instances of 10 KB.
BYTES_MAX = 2**30
DEPTH_MAX = 64
# Aliases can expand a small file without a bound; the largest realistic job has 100,000 instances with some keys each.
NODE_COUNT_MAX = 5_000_000

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
CONSTRUCTOR = yaml.constructor.SafeConstructor()
TAG = "tag:yaml.org,2002:"
# YAML 1.1 reads 1e3 as a string because it has no point.
EXPONENT_WITHOUT_POINT = re.compile(r"[-+]?\d+[eE][-+]?\d+")

INTEGER_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
SCALAR_NAMES = {"str": "text", "int": "a number", "float": "a fraction", "bool": "a boolean", "null": "nothing"}


class ConfigError(Exception):
    """An invalid configuration file; lines and columns count from 1."""

    def __init__(self, path: str, line: int, column: int, message: str) -> None:
        super().__init__(f"{path}:{line}:{column}: {message}")
        self.path = path
        self.line = line
        self.column = column
        self.message = message


def load_message(
    source: Path | str | bytes,
    message_class: type[MessageT],
    name: str = "<text>",
    value_count_max: int = NODE_COUNT_MAX,
) -> MessageT:
    """Read a file (a Path) or YAML text (shown as ``name`` in errors) into a new message.

    Raises ConfigError for every fault of the content, and OSError if the file cannot be read.
    """
    name = str(source) if isinstance(source, Path) else name
    root = compose(_content(source) if isinstance(source, Path) else source, name)
    message = message_class()
    MessageReader(name, value_count_max).read_message(root, message, where="", depth=0)
    return message


def _content(path: Path) -> bytes:
    """Return the content of a file. Raises ConfigError, OSError."""
    try:
        return read_file(path, "file", BYTES_MAX)
    except FileTooLarge:
        raise ConfigError(str(path), 1, 1, f"more than {BYTES_MAX >> 20} MiB, too large for a configuration") from None
    except InvalidArgument as error:
        raise ConfigError(str(path), 1, 1, error.message) from None


def top_keys(text: bytes | str, name: str) -> set[str]:
    """Return the keys of the outermost mapping as ``squash`` spells them. Raises ConfigError."""
    root = compose(text, name)
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    return {squash(key.value) for key, _ in pairs if isinstance(key, yaml.ScalarNode)}


def compose(text: bytes | str, name: str) -> yaml.Node:
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        refuse_depth(text, name)
        root = yaml.compose(text, Loader=LOADER)
    except UnicodeDecodeError as error:
        raise ConfigError(name, error.object.count(b"\n", 0, error.start) + 1, 1, "not UTF-8 text") from error
    except yaml.reader.ReaderError as error:
        raise ConfigError(name, 1, 1, f"not YAML: {error.reason}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise error_at(mark, name, f"not YAML: {error.problem or error.context}") from error
    if root is None:
        raise ConfigError(name, 1, 1, "the file is empty")
    assert isinstance(root, yaml.Node)
    return root


def refuse_depth(text: str, name: str) -> None:
    """Refuse deep nesting before composing, which recurses, in C without a check; reading events does not."""
    depth = 0
    for event in yaml.parse(text, Loader=LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEPTH_MAX:
            raise error_at(event.start_mark, name, f"nested deeper than {DEPTH_MAX}")


def error_at(mark: Any, name: str, text: str) -> ConfigError:
    """Return an error at a mark. Marks count from 0 and, outside of composed nodes, may be missing."""
    return ConfigError(name, mark.line + 1 if mark else 1, mark.column + 1 if mark else 1, text)


class MessageReader:
    """Fills a message from composed nodes. ``where`` is the path of keys as written by the user."""

    def __init__(self, name: str, value_count_max: int = NODE_COUNT_MAX) -> None:
        self.name = name
        self.value_count_max = value_count_max
        self.node_count = 0

    def fail(self, node: yaml.Node, where: str, text: str) -> ConfigError:
        return error_at(node.start_mark, self.name, f"{where}: {text}" if where else text)

    def make_error(self, node: yaml.Node, where: str, what: str) -> ConfigError:
        return self.fail(node, where, f"expected {what}, not {describe(node)}")

    def read_message(self, node: yaml.Node, message: Message, where: str, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise self.fail(node, where, f"nested deeper than {DEPTH_MAX}")
        descriptor = message.DESCRIPTOR
        if is_duration(descriptor) and isinstance(node, yaml.ScalarNode):
            setattr(message, "nanoseconds", self.read_scalar(node, descriptor.fields[0], where))  # noqa: B010
            return
        if not isinstance(node, yaml.MappingNode):
            raise self.make_error(node, where, f"a mapping ({descriptor.name})")
        fields = {squash(field.name): field for field in descriptor.fields}
        seen: set[str] = set()
        for key_node, value in self.pairs(node, where, depth):
            key = self.read_key(key_node, where)
            field = fields.get(squash(key))
            if field is None:
                known = fields if key == squash(key) else {field.name: field for field in fields.values()}
                raise self.fail(key_node, where, f"unknown key {quote(key)}{suggest(key, known)}")
            self.refuse_duplicate(field.name, seen, key_node, key, where)
            if not is_null(value):
                self.read_field(value, message, field, f"{where}.{key}" if where else key, depth)
        for field in descriptor.fields:
            if is_required(field) and not message.HasField(field.name):
                raise self.fail(node, where, f"missing key {squash(field.name)!r}")

    def pairs(self, node: yaml.MappingNode, where: str, depth: int) -> list[tuple[yaml.Node, yaml.Node]]:
        """Return the keys and values of a mapping with ``<<`` resolved: written keys override merged ones."""
        if depth > DEPTH_MAX:
            raise self.fail(node, where, f"nested deeper than {DEPTH_MAX}")
        self.count(node, len(node.value))
        own = [(key, value) for key, value in node.value if key.tag != f"{TAG}merge"]
        taken = set(map(key_of, own))
        for key, value in node.value:
            if key.tag != f"{TAG}merge":
                continue
            for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if not isinstance(source, yaml.MappingNode):
                    raise self.make_error(source, where, "a mapping to merge")
                merged = [pair for pair in self.pairs(source, where, depth + 1) if key_of(pair) not in taken]
                own += merged
                taken.update(map(key_of, merged))
        return own

    def count(self, node: yaml.Node, added: int) -> None:
        self.node_count += added
        if self.node_count > self.value_count_max:
            raise self.fail(node, "", f"more than {self.value_count_max} values")

    def read_key(self, node: yaml.Node, where: str) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self.make_error(node, where, "a key")
        return str(node.value)

    def refuse_duplicate(self, name: object, seen: set[Any], node: yaml.Node, key: str, where: str) -> None:
        if name in seen:
            raise self.fail(node, where, f"duplicate key {quote(key)}")
        seen.add(name)

    def read_field(self, node: yaml.Node, message: Message, field: Field, where: str, depth: int) -> None:
        value = getattr(message, field.name)
        if is_map(field):
            self.read_map(node, value, field, where, depth)
        elif is_repeated(field) and field.type == FieldDescriptor.TYPE_MESSAGE:
            for index, item in enumerate(self.items(node, field, where)):
                self.read_message(item, value.add(), f"{where}[{index}]", depth + 1)
        elif is_repeated(field):
            for index, item in enumerate(self.items(node, field, where)):
                value.append(self.read_scalar(item, field, f"{where}[{index}]"))
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            value.SetInParent()
            self.read_message(node, value, where, depth + 1)
        else:
            setattr(message, field.name, self.read_scalar(node, field, where))

    def items(self, node: yaml.Node, field: Field, where: str) -> list[yaml.Node]:
        if not isinstance(node, yaml.SequenceNode):
            raise self.make_error(node, where, f"a list of {type_name(field)}")
        self.count(node, len(node.value))
        return list(node.value)

    def read_map(self, node: yaml.Node, target: Any, field: Field, where: str, depth: int) -> None:
        key_field, value_field = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        if not isinstance(node, yaml.MappingNode):
            raise self.make_error(node, where, f"a mapping from {type_name(key_field)} to {type_name(value_field)}")
        seen: set[Any] = set()
        for key_node, value in self.pairs(node, where, depth):
            key = self.read_scalar(key_node, key_field, where)
            self.refuse_duplicate(key, seen, key_node, str(key), where)
            if value_field.type != FieldDescriptor.TYPE_MESSAGE:
                target[key] = self.read_scalar(value, value_field, f"{where}[{key}]")
            elif is_null(value):
                target[key].SetInParent()  # an empty "3:" is instance 3 without a difference
            else:
                self.read_message(value, target[key], f"{where}[{key}]", depth + 1)

    def read_scalar(self, node: yaml.Node, field: Field, where: str) -> Any:
        if field.type == FieldDescriptor.TYPE_BYTES:
            return self.read_data(node, field, where)
        if not isinstance(node, yaml.ScalarNode) or is_null(node):
            raise self.make_error(node, where, type_name(field))
        tag = node.tag.removeprefix(TAG)
        if field.type == FieldDescriptor.TYPE_STRING and tag != "binary":
            return node.value  # 8080 and yes are read as text
        if field.type == FieldDescriptor.TYPE_BOOL and tag == "bool":
            return CONSTRUCTOR.construct_yaml_bool(node)
        if field.type == FieldDescriptor.TYPE_ENUM:
            return self.read_enum(node, field, where)
        if field.cpp_type in INTEGER_RANGES:
            return self.read_integer(node, field, where)
        if field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
            number = parse_number(node)
            if number is not None and math.isfinite(number):
                return float(number)
        raise self.make_error(node, where, type_name(field))

    def read_integer(self, node: yaml.ScalarNode, field: Field, where: str) -> int:
        number = parse_number(node)
        if number is None or not math.isfinite(number) or int(number) != number:
            raise self.make_error(node, where, type_name(field))
        low, high = INTEGER_RANGES[field.cpp_type]
        if not low <= number <= high:
            raise self.fail(node, where, f"{node.value} is out of range, expected {low} to {high}")
        return int(number)

    def read_enum(self, node: yaml.ScalarNode, field: Field, where: str) -> int:
        enum = field.enum_type
        number = parse_number(node)
        if number is not None and number in {value.number for value in enum.values}:
            return int(number)
        by_name = {squash(value.name): value.number for value in enum.values}
        if number is None and squash(node.value) in by_name:
            return int(by_name[squash(node.value)])
        hint = suggest(node.value, enum.values_by_name) or f", expected {enum_choices(enum)}"
        raise self.fail(node, where, f"unknown {enum.name} {quote(node.value)}{hint}")

    def read_data(self, node: yaml.Node, field: Field, where: str) -> bytes:
        """Read text, base64 after ``!!binary``, or a list of numbers."""
        if isinstance(node, yaml.SequenceNode):
            numbers = [parse_number(item) for item in self.items(node, field, where)]
            if all(isinstance(number, int) and 0 <= number <= 255 for number in numbers):
                return bytes(numbers)  # type: ignore[arg-type]
        elif isinstance(node, yaml.ScalarNode) and node.tag == f"{TAG}binary":
            try:
                return bytes(CONSTRUCTOR.construct_yaml_binary(node))
            except yaml.constructor.ConstructorError as error:
                raise self.make_error(node, where, "base64") from error
        elif isinstance(node, yaml.ScalarNode) and not is_null(node):
            return str(node.value).encode()
        raise self.make_error(node, where, type_name(field))


def key_of(pair: tuple[yaml.Node, yaml.Node]) -> str:
    return squash(str(pair[0].value))


def suggest(name: str, known: Iterable[str]) -> str:
    folded = {candidate.casefold(): candidate for candidate in known}
    close = difflib.get_close_matches(name.casefold(), folded, n=1)
    return f" (did you mean {folded[close[0]]!r}?)" if close else ""


def is_null(node: yaml.Node) -> bool:
    return bool(node.tag == f"{TAG}null")


def is_repeated(field: Field) -> bool:
    """Return whether the field is a list or a map."""
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)


def is_required(field: Field) -> bool:
    """Return whether the field must be set. Here as above, a protobuf before version 6, which programs of the client
    may have, knows only the label."""
    return bool(field.is_required if hasattr(field, "is_required") else field.label == field.LABEL_REQUIRED)


def is_map(field: Field) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def is_duration(descriptor: Any) -> bool:
    """Return whether the message is a time or duration of Mesos, for which nanoseconds are accepted as well."""
    return [field.name for field in descriptor.fields] == ["nanoseconds"]


def parse_number(node: yaml.Node) -> int | float | None:
    """Return the number in a scalar, or None."""
    if not isinstance(node, yaml.ScalarNode):
        return None
    tag = node.tag.removeprefix(TAG)
    try:
        if tag == "int":
            return int(CONSTRUCTOR.construct_yaml_int(node))
        if tag == "float":
            return float(CONSTRUCTOR.construct_yaml_float(node))
    except ValueError:
        return None
    if not node.style and EXPONENT_WITHOUT_POINT.fullmatch(node.value):
        return float(node.value)
    return None


def describe(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        kind = SCALAR_NAMES.get(node.tag.removeprefix(TAG), "text")
        number = parse_number(node)
        if number is not None and not math.isfinite(number):
            kind = "infinity or NaN"
        return kind if is_null(node) else f"{kind} ({quote(node.value)})"
    return "a mapping" if isinstance(node, yaml.MappingNode) else "a list"


def type_name(field: Field) -> str:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return str(field.message_type.name)
    if field.type == FieldDescriptor.TYPE_ENUM:
        return str(field.enum_type.name)
    if field.cpp_type in INTEGER_RANGES:
        return "a whole number"
    names = {
        FieldDescriptor.TYPE_STRING: "text",
        FieldDescriptor.TYPE_BYTES: "bytes",
        FieldDescriptor.TYPE_BOOL: "true or false",
    }
    return names.get(field.type, "a number")


def enum_choices(enum: Any) -> str:
    return ", ".join(f"{value.name} ({value.number})" for value in enum.values)


class VisibleDumper(yaml.SafeDumper):
    """Writes texts with control characters in double quotes, in which YAML interprets their escapes."""


def represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = None if is_printable(text, MULTI_LINE) else '"'
    return dumper.represent_scalar(f"{TAG}str", text, style=style)


VisibleDumper.add_representer(str, represent_text)


def dump_message(message: Message) -> str:
    """Return the YAML of the set fields: names as in the .proto file, enums by name, without default values."""
    return dump_plain(plain(message))


def dump_plain(shown: dict[str, Any]) -> str:
    """Return the YAML of a result of ``plain``, without characters that steer a terminal."""
    text = yaml.dump(
        shown, Dumper=VisibleDumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=120
    )
    return escape(str(text), MULTI_LINE)


def plain(message: Message) -> dict[str, Any]:
    return {field.name: plain_field(field, value) for field, value in message.ListFields()}


def plain_field(field: Field, value: Any) -> Any:
    if is_map(field):
        value_field = field.message_type.fields_by_name["value"]
        is_count = value_field.cpp_type in INTEGER_RANGES
        shown = (key for key in sorted(value) if value[key] or not is_count)
        return {key: plain_value(value_field, value[key]) for key in shown}
    if is_repeated(field):
        return [plain_value(field, item) for item in value]
    return plain_value(field, value)


def plain_value(field: Field, value: Any) -> Any:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return plain(value)
    if field.type == FieldDescriptor.TYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else value
    return value
