"""The original's file of users and roles, in YAML: users with passwords, roles with lists of methods.

Its clients send the user and the password in the headers ``username`` and ``password`` of each call.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import partial
from hashlib import blake2b
from typing import Any

import yaml

from peloton.access.caller import Caller, CallerKind, MethodList
from peloton.access.rows import check_keys, text_of, texts_of
from peloton.access.table import RULES
from peloton.api.service_names import SPELLINGS
from peloton.errors import Unauthenticated
from peloton.model.text import quote
from services.access.files import read_parsed_file

REFUSED = "invalid Username/Password combination"
USERS_MAX = 10_000
_KEYS = frozenset({"users", "roles", "internal_user"})
_USER_KEYS = frozenset({"username", "password", "role"})
_ROLE_KEYS = frozenset({"role", "accept", "reject"})
_FIRST_NAMES = {name: names[0] for names in SPELLINGS for name in names}
_PROCESS_KEY = secrets.token_bytes(32)
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Users:
    """Users by name, each with the hash of the password and the methods of the role. ``default`` is the one for calls
    without credentials.
    """

    by_name: Mapping[str, tuple[bytes, MethodList]]
    default: MethodList | None = None


class _Loader(yaml.SafeLoader):
    """Loader that refuses a key that is there twice: the first of two lists would be lost."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        if len(keys) != len(set(map(str, keys))):
            raise yaml.constructor.ConstructorError(None, None, "a key is there twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _hash(password: str) -> bytes:
    return blake2b(password.encode(errors="surrogatepass"), key=_PROCESS_KEY, digest_size=32).digest()


def parse_users(text: str, unserved: Collection[str] = ()) -> Users:
    """Return the users of a file. ``unserved`` are methods that callers may name although they are not served.

    Raises ValueError.
    """
    try:
        parsed = yaml.load(text, _Loader)  # noqa: S506 - it is a SafeLoader
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)  # the text of the error would quote passwords
        where = f", at line {mark.line + 1}" if mark else ""
        raise ValueError(f"the file is not YAML, or has a key twice{where}") from None
    top = check_keys(parsed, _KEYS, "the file")
    methods = (*RULES, *unserved)
    roles: dict[str, MethodList] = {}
    for number, row in enumerate(_rows(top, "roles"), 1):
        listed = _parse_role(row, f"role {number}", methods)
        if listed.role in roles:
            raise ValueError(f"role {number}: role {listed.role} is there twice")
        roles[listed.role] = listed
    users: dict[str, tuple[bytes, MethodList]] = {}
    default: MethodList | None = None
    for number, row in enumerate(_rows(top, "users"), 1):
        where = f"user {number}"
        user = check_keys(row, _USER_KEYS, where)
        role = text_of(user, "role", where)
        if role not in roles:
            raise ValueError(f"{where}: role {role} is not among the roles of the file")
        name, password = text_of(user, "username", where, ""), text_of(user, "password", where, "")
        if not name and not password:
            if default is not None:
                raise ValueError(f"{where}: a second user without name and password; one is the default user")
            default = roles[role]
        elif not name or not password:
            raise ValueError(f"{where}: want both username and password, or neither for the default user")
        elif name in users:
            raise ValueError(f"{where}: user {name} is there twice")
        else:
            users[name] = _hash(password), roles[role]
    internal = text_of(top, "internal_user", "the file", "")
    if internal and (internal not in users or users[internal][1].accept != ("*",) or users[internal][1].reject):
        raise ValueError(
            f"internal user {internal}: want one of the users, with a role that accepts * and rejects none"
        )
    return Users(users, default)


def _rows(top: dict[str, object], key: str) -> list[object]:
    rows = top.get(key)
    if not isinstance(rows, list) or len(rows) > USERS_MAX:
        raise ValueError(f"want a list of at most {USERS_MAX:,} {key}")
    return rows


def _parse_role(row: object, where: str, methods: Collection[str]) -> MethodList:
    """Return the lists of a role. An entry that matches no method gives a warning in ``accept``, and is a fault in
    ``reject``: it would let through what it was to keep out.
    """
    found = check_keys(row, _ROLE_KEYS, where)
    name = text_of(found, "role", where)
    lists = MethodList(
        name, *(tuple(_pattern(text, where) for text in texts_of(found, key, where)) for key in ("accept", "reject"))
    )
    for key, patterns in (("accept", lists.accept), ("reject", lists.reject)):
        for text, pattern in zip(texts_of(found, key, where), patterns, strict=True):
            if any(fnmatchcase(method, pattern) for method in methods):
                continue
            what = f"{where}, {name}: {key} {quote(text)} matches no method of Peloton"
            if key == "reject":
                raise ValueError(f"{what}, and would reject nothing{_hint(pattern, methods)}")
            log.warning("%s, and has no effect%s", what, _hint(pattern, methods))
    return lists


def _hint(pattern: str, methods: Collection[str]) -> str:
    close = get_close_matches(pattern.rstrip("*"), methods, n=1)
    return f": did you mean {close[0].replace('/', ':')}?" if close else ""


def _pattern(text: str, where: str) -> str:
    """Return the pattern of ``service/method`` that an entry means: ``*``, or ``service:method`` with ``*`` at its end.
    All names of a service mean the same.
    """
    if text == "*":
        return text
    service, colon, method = text.partition(":")
    if not colon or not method or "*" in method[:-1] or any(c in text for c in "?[]"):
        raise ValueError(f"{where}: {quote(text)}: want *, or SERVICE:METHOD with at most one * at its end")
    return f"{_FIRST_NAMES.get(service, service.replace('*', ''))}/{method}"


class BasicUsers:
    """Authenticator of the users of a file."""

    def __init__(self, path: str, unserved: Collection[str] = ()) -> None:
        self._file = read_parsed_file(path, "file of users", partial(parse_users, unserved=unserved))

    def read_version(self) -> int:
        """Return the version of the file, after reading it if it has changed."""
        self._file.get()
        return self._file.generation

    def authenticate(self, name: str, password: str) -> Caller:
        """Return the caller. Raises Unauthenticated."""
        wanted, methods = self._file.get().by_name.get(name, (b"\0" * 32, None))
        if not hmac.compare_digest(_hash(password), wanted) or methods is None:
            raise Unauthenticated(REFUSED)
        return Caller(name, CallerKind.USER, issuer="file of users", methods=methods)

    def default(self) -> Caller | None:
        """Return the caller of a call without credentials; None: the file has no default user."""
        methods = self._file.get().default
        return Caller("default", CallerKind.ANONYMOUS, issuer="file of users", methods=methods) if methods else None
