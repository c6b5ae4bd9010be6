"""Bindings of roles to users, groups and certificates, from a TOML file.

[[binding]]
role = "submitter"
subjects = ["user:alice", "group:maps", "spiffe://example.org/build/*", "cn:build.example.org"]
pools = ["/eng/maps"]
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace

from peloton.access.caller import CLUSTER, CLUSTER_ROLES, Caller, Grant, Role
from peloton.access.quota import ANYONE, BELOW, COMMON_NAME, GROUP, SPIFFE, USER
from peloton.access.rows import check_keys, text_of, texts_of
from peloton.model.text import quote
from services.access.caller import CERTIFICATE
from services.access.files import read_parsed_file

BINDINGS_MAX = 10_000
_KEYS = frozenset({"role", "subjects", "pools"})
_FORMS = (USER, GROUP, SPIFFE, COMMON_NAME)

SUBJECT_FORMS = (
    "user:NAME, group:NAME, spiffe://DOMAIN/PATH, which may end with /*, cn:NAME for the common name of a certificate"
)
Bindings = Mapping[str, tuple[Grant, ...]]
"""Subject -> its grants."""


def parse_bindings(text: str) -> Bindings:
    """Return the bindings of a file. Raises ValueError."""
    try:
        parsed = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"the file is not TOML: {error}") from None
    rows = check_keys(parsed, frozenset({"binding"}), "the file").get("binding", [])
    if not isinstance(rows, list) or len(rows) > BINDINGS_MAX:
        raise ValueError(f"want at most {BINDINGS_MAX:,} tables [[binding]]")
    found: dict[str, list[Grant]] = {}
    for number, row in enumerate(rows, 1):
        where = f"binding {number}"
        table = check_keys(row, _KEYS, where)
        grants = _grants_of(table, where)
        subjects = texts_of(table, "subjects", where)
        if not subjects:
            raise ValueError(f"{where}: want at least one subject")
        for subject in subjects:
            if not is_subject(subject):
                raise ValueError(
                    f"{where}: subject {quote(subject)}: want {SUBJECT_FORMS}, or * for every caller with credentials"
                )
            found.setdefault(subject, []).extend(grants)
    return {subject: tuple(dict.fromkeys(grants)) for subject, grants in found.items()}


def _grants_of(table: dict[str, object], where: str) -> list[Grant]:
    name = text_of(table, "role", where)
    if name not in set(Role):
        raise ValueError(f"{where}: role {quote(name)}: want {', '.join(Role)}")
    role, pools = Role(name), texts_of(table, "pools", where)
    if role in CLUSTER_ROLES:
        if pools not in ((), (CLUSTER,)):
            raise ValueError(f"{where}: role {role} counts on the cluster: leave out pools")
        return [Grant(role)]
    if not pools:
        raise ValueError(f"{where}: want the pools of role {role}; / is the cluster")
    for pool in pools:
        if not pool.startswith("/") or (pool != CLUSTER and pool.endswith("/")) or "//" in pool:
            raise ValueError(f"{where}: pool {quote(pool)}: want the path of a pool, such as /eng/maps")
    return [Grant(role, pool) for pool in pools]


def is_subject(subject: str) -> bool:
    """Report whether a text is a subject, which a role or a quota may have."""
    is_wild = "*" in subject and not (subject.endswith(BELOW) and subject.count("*") == 1)
    return subject == ANYONE or (subject.startswith(_FORMS) and not is_wild and subject not in _FORMS)


def grant(caller: Caller, bindings: Bindings) -> Caller:
    """Return the caller with the grants that the bindings give it."""
    if caller.is_anonymous:
        return caller
    found = [each for subject in (ANYONE, *subjects_of(caller)) for each in bindings.get(subject, ())]
    return replace(caller, grants=tuple(dict.fromkeys((*caller.grants, *found)))) if found else caller


def subjects_of(caller: Caller) -> list[str]:
    """Return the subjects that a caller with credentials is by name and groups."""
    if caller.issuer != CERTIFICATE:
        return [f"{USER}{caller.name}", *(f"{GROUP}{group}" for group in caller.groups)]
    if not caller.name.startswith(SPIFFE):  # a common name may be any text, such as user:alice
        return [f"{COMMON_NAME}{caller.name}"]
    parts = caller.name.split("/")
    return [caller.name, *("/".join([*parts[:count], "*"]) for count in range(3, len(parts)))]


class BindingsFile:
    def __init__(self, path: str) -> None:
        self._file = read_parsed_file(path, "file of bindings", parse_bindings)

    def read_version(self) -> int:
        """Return the version of the file, after reading it if it has changed."""
        self._file.get()
        return self._file.generation

    def get(self) -> Bindings:
        return self._file.get()
