"""A YAML file of an installation with further kinds of owners that can be suspended, see docs/kubernetes/owners.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from peloton.errors import InvalidArgument
from peloton.files import read_text_file
from peloton.model.text import quote
from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.suspend.owner_kinds import KINDS, End, Factor, Need, OwnerKind, PodSets

FILE_BYTES_MAX = 2**18
KINDS_MAX = 100
PARTS_MAX = 20
"""Limit of the pod sets, factors, fields, conditions, states, needs and values in one list."""
_PATH = re.compile(r"[A-Za-z][\w-]{0,62}(\.[A-Za-z][\w-]{0,62}){0,9}", re.ASCII)
_GROUP = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}", re.ASCII)
_FORMS = ("one", "list", "map")


def read_kinds(path: str) -> tuple[OwnerKind, ...]:
    """Return the known kinds and those of the file; an empty path means none. Raises InvalidArgument naming file, kind
    and rule."""
    if not path:
        return KINDS
    try:
        tree = yaml.safe_load(read_text_file(Path(path), "kinds of owners", FILE_BYTES_MAX))
        return (*KINDS, *_parse(tree))
    except OSError as error:
        raise InvalidArgument(f"{path}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise InvalidArgument(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    except ValueError as error:
        raise InvalidArgument(f"{path}: {error}") from None


def _parse(tree: Any) -> Iterator[OwnerKind]:
    known = {(kind.group, kind.version, kind.kind) for kind in KINDS}
    for number, row in enumerate(_rows(_check(tree, "kinds", "the file"), "kinds", "the file", KINDS_MAX), 1):
        kind = _parse_kind(row, f"kind {number}")
        key = (kind.group, kind.version, kind.kind)
        if key in known:
            raise ValueError(f"kind {number}: {kind.kind} of {kind.api_version} is there already")
        known.add(key)
        yield kind


def _parse_kind(row: Any, where: str) -> OwnerKind:
    fields = _check(row, "group, version, kind, plural, suspend, podSets, ended, needs", where)
    name = _text(fields, "kind", where, _NAME)
    where = f"{where}, {name}"
    places = tuple(_parse_place(one, where) for one in _rows(fields, "podSets", where))
    if not places:
        raise ValueError(f"{where}: podSets: want one at least")
    return OwnerKind(
        group=_text(fields, "group", where, _GROUP),
        version=_text(fields, "version", where, _NAME),
        kind=name,
        plural=_text(fields, "plural", where, _NAME),
        suspend_path=_spec_path(fields, "suspend", where),
        places=places,
        end=_parse_end(fields.get("ended", {}), f"{where}: ended"),
        needs=tuple(_parse_need(one, f"{where}: needs") for one in _rows(fields, "needs", where)),
    )


def _parse_place(row: Any, where: str) -> PodSets:
    where = f"{where}: podSets"
    fields = _check(row, "path, form, name, template, count", where)
    form = fields.get("form", "one")
    if form not in _FORMS:
        raise ValueError(f"{where}: form is {quote(str(form))}: want {', '.join(_FORMS)}")
    count = tuple(_parse_factor(one, f"{where}: count") for one in _rows(fields, "count", where))
    return PodSets(
        _spec_path(fields, "path", where),
        form,
        _text(fields, "name", where, _PATH, "name"),
        _text(fields, "template", where, _PATH, "template"),
        count or (Factor(("replicas",)),),
    )


def _parse_factor(row: Any, where: str) -> Factor:
    fields = _check(row, "leastOf, otherwise", where)
    otherwise = fields.get("otherwise", 1)
    if type(otherwise) is not int or otherwise not in (0, 1):
        raise ValueError(f"{where}: otherwise is {otherwise!r}: want 0 or 1")
    return Factor(_texts(fields, "leastOf", where, _PATH), otherwise)


def _parse_end(row: Any, where: str) -> End:
    fields = _check(row, "conditions, state, states", where)
    conditions = _texts(fields, "conditions", where, _NAME) if "conditions" in fields else ()
    if "state" not in fields:
        return End(conditions)
    return End(conditions, _text(fields, "state", where, _PATH), _texts(fields, "states", where))


def _parse_need(row: Any, where: str) -> Need:
    fields = _check(row, "path, values", where)
    values = _rows(fields, "values", where)
    if not values or not all(each is None or each is True or _is_word(each) for each in values):
        raise ValueError(f"{where}: values is {values!r}: want texts, true, or null for a missing field")
    return Need(_spec_path(fields, "path", where), tuple(values))


def _is_word(value: Any) -> bool:
    """Return whether it is a text that an expression of a policy can quote."""
    return isinstance(value, str) and re.fullmatch(r"[\w./:-]{1,200}", value, re.ASCII) is not None


def _check(row: Any, known: str, where: str) -> Json:
    """Return the mapping. Raises ValueError if it is none, or has other fields."""
    if not isinstance(row, dict):
        raise ValueError(f"{where}: want a mapping with the fields {known}")
    unknown = sorted(str(key) for key in row if key not in known.split(", "))
    if unknown:
        raise ValueError(f"{where}: unknown field {quote(unknown[0])}; the fields are {known}")
    return row


def _rows(fields: Json, key: str, where: str, most: int = PARTS_MAX) -> Sequence[Any]:
    found = fields.get(key, [])
    if not isinstance(found, list) or len(found) > most:
        raise ValueError(f"{where}: {key}: want a list of at most {most}")
    return found


def _text(fields: Json, key: str, where: str, form: re.Pattern[str], otherwise: str = "") -> str:
    found = fields.get(key, otherwise)
    if not isinstance(found, str) or form.fullmatch(found) is None:
        raise ValueError(f"{where}: {key} is {quote(str(found))}: want a text of the form {form.pattern}")
    return found


def _spec_path(fields: Json, key: str, where: str) -> str:
    found = _text(fields, key, where, _PATH)
    if found.split(".")[0] != "spec":
        raise ValueError(f"{where}: {key} is {quote(found)}: want a path in spec, such as spec.suspend")
    return found


def _texts(fields: Json, key: str, where: str, form: re.Pattern[str] = _NAME) -> tuple[str, ...]:
    found = _rows(fields, key, where)
    if not found or not all(isinstance(each, str) and form.fullmatch(each) for each in found):
        raise ValueError(f"{where}: {key} is {found!r}: want one at least, each of the form {form.pattern}")
    return tuple(found)
