"""Rules of methods by every name under which the api serves them, and their requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import Message

from peloton.access.rules import Find, MethodRule
from peloton.access.table import RULES, make_refused_rule
from peloton.api.service_names import SPELLINGS
from peloton.api.wire_faults import message_of

_FIRST_NAMES = {name: names[0] for names in SPELLINGS for name in names}


def first_name(path: str) -> str:
    """Return ``service/method`` with the first name of the service."""
    service, _, method = path.removeprefix("/").rpartition("/")
    return f"{_FIRST_NAMES.get(service, service)}/{method}"


def make_rules(refused: Mapping[str, Mapping[str, str]]) -> dict[str, MethodRule]:
    """Return the rules by the paths of all methods. ``refused`` has the services whose methods are refused by name."""
    rules = {
        f"/{name}/{method.rpartition('/')[2]}": rule
        for method, rule in RULES.items()
        for name in _NAMES.get(method.rpartition("/")[0], (method.rpartition("/")[0],))
    }
    for service, methods in refused.items():
        for method in methods:
            rules.setdefault(f"/{service}/{method}", make_refused_rule(f"{service}/{method}"))
    return rules


_NAMES = {names[0]: names for names in SPELLINGS}


@cache
def request_class(path: str) -> type[Message]:
    """Return the class of a method's requests."""
    service, _, name = path.removeprefix("/").rpartition("/")
    method = descriptor_pool.Default().FindServiceByName(service).methods_by_name[name]
    return message_factory.GetMessageClass(method.input_type)


@cache
def answer_class(path: str) -> type[Message]:
    """Return the class of a method's answers."""
    service, _, name = path.removeprefix("/").rpartition("/")
    method = descriptor_pool.Default().FindServiceByName(service).methods_by_name[name]
    return message_factory.GetMessageClass(method.output_type)


def names_in(rule: MethodRule, path: str, request: Any) -> Iterator[tuple[Find, str]]:
    """Yield the texts in a request that lead to pools. Raises InvalidArgument for bytes that are no request."""
    if not rule.sources:
        return
    message = message_of(request_class(path), request) if isinstance(request, bytes) else request
    for source in rule.sources:
        for text in _values(message, source.field.split(".")):
            yield source.find, text


def _values(value: Any, fields: list[str]) -> Iterator[str]:
    """Yield the texts at the path of a field that are set; of a list all, since an empty one counts as well."""
    for at, field in enumerate(fields):
        value = getattr(value, field)
        if not isinstance(value, (str, Message)):  # repeated
            for each in value:
                yield from [each] if isinstance(each, str) else _values(each, fields[at + 1 :])
            return
    if value:
        yield value
