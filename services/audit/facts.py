"""Facts about a call for the audit log: its objects, the digest of its request, and the result in its answer."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from peloton.access.audit import OK, REASON_CHARS_MAX, clean
from peloton.access.rules import Find, MethodRule
from peloton.api.secret_values import clear_values, has_any_value
from peloton.errors import PelotonError
from services.access.methods import answer_class, names_in, request_class

NAMES_MAX = 5
"""Maximum number of objects that an entry names."""
SECRETS, ERROR = "secrets", "error"
"""Fields of requests and answers."""
_KINDS = {Find.ABOVE: "pool"}
_OF_IDS = {"JobID": "job", "UpdateID": "update", "ResourcePoolID": "pool", "VolumeID": "volume"}


def name_objects(rule: MethodRule, path: str, request: Any) -> str:
    """Return kinds and names of the objects of a request."""
    try:
        if rule.sources:
            found = [f"{_KINDS.get(find, find.name.lower())} {text}" for find, text in names_in(rule, path, request)]
        else:
            message = request_class(path).FromString(request) if isinstance(request, bytes) else request
            found = list(_name_fields(message))
    except (PelotonError, DecodeError):  # the method refuses it
        return ""
    return join(found)


def join(names: list[str]) -> str:
    some = list(dict.fromkeys(names))
    if len(some) > NAMES_MAX:
        some = [*some[:NAMES_MAX], f"and {len(some) - NAMES_MAX} more"]
    return clean(", ".join(some))


def _name_fields(message: Message) -> Iterator[str]:
    """Yield the texts of a request about the cluster, which have no pool: hosts, host pools, components."""
    for field, value in message.ListFields():
        values: Any = [value] if isinstance(value, (str, int)) else value
        if field.type == FieldDescriptor.TYPE_STRING:
            yield from (f"{field.name} {text}" for text in values)
        elif field.enum_type is not None:
            names = field.enum_type.values_by_number
            yield from (f"{field.name} {names[number].name if number in names else number}" for number in values)


def digest_of(request: Any) -> str:
    """Return the SHA-256 of a request without its secrets."""
    if isinstance(request, bytes):
        return sha256(request).hexdigest()
    has_files = SECRETS in request.DESCRIPTOR.fields_by_name and len(getattr(request, SECRETS))
    pod = _default_pod(request)
    if has_files or (pod is not None and has_any_value(pod)):
        public = type(request)()
        public.CopyFrom(request)
        if has_files:
            public.ClearField(SECRETS)
        if (pod := _default_pod(public)) is not None:
            clear_values(pod)
        request = public
    return sha256(request.SerializeToString(deterministic=True)).hexdigest()


def _default_pod(request: Any) -> Any:
    """Return the configuration of all instances in a request, the only one that may have secrets; None without one."""
    for config, pod in (("config", "defaultConfig"), ("jobConfig", "defaultConfig"), ("spec", "default_spec")):
        field = request.DESCRIPTOR.fields_by_name.get(config)
        if field is not None and field.message_type is not None and pod in field.message_type.fields_by_name:
            return getattr(getattr(request, config), pod)
    return None


def result_of(path: str, answer: Any) -> tuple[str, str, str]:
    """Return the result, its reason, and the object that an answer names. Answers of v0 have errors inside."""
    try:
        message: Any = answer_class(path).FromString(answer) if isinstance(answer, bytes) else answer
    except DecodeError:
        return OK, "", ""
    if ERROR in message.DESCRIPTOR.fields_by_name and message.HasField(ERROR):
        error: Any = getattr(message, ERROR)
        for field, value in error.ListFields():
            text = getattr(value, "message", value)
            return field.name, clean(str(text), REASON_CHARS_MAX), ""
        return ERROR, "", ""
    created = [
        f"{_OF_IDS[field.message_type.name]} {value.value}"
        for field, value in message.ListFields()
        if field.message_type is not None and not field.is_repeated and field.message_type.name in _OF_IDS
    ]
    return OK, "", join(created)
