"""Quotas of users: the settings, and rules for users, groups and roles from a TOML file.

[[quota]]
subjects = ["user:nightly", "group:pipelines", "role:operator", "spiffe://example.org/build/*", "cn:build"]   # "*": all
active_pods = 20000
submissions_per_minute = 600
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from dataclasses import dataclass

from peloton.access.caller import Caller, CallerKind, Role
from peloton.access.quota import ACTIVE_PODS, ANYONE, QUOTAS, ROLE, SUBMISSIONS, Limit, Rules, find_limit, list_roles
from peloton.access.rows import check_keys, texts_of
from peloton.files import ReloadedFiles
from peloton.model.text import quote
from services.access.bindings import SUBJECT_FORMS, is_subject, subjects_of
from services.access.files import read_parsed_file

RULES_MAX = 10_000
LIMIT_MAX = 100_000_000
_SUBJECTS = f"{SUBJECT_FORMS}, role:NAME, or * for every caller with credentials"


def parse_quotas(text: str) -> Rules:
    """Return the rules of a file. Raises ValueError."""
    try:
        parsed = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"the file is not TOML: {error}") from None
    rows = check_keys(parsed, frozenset({"quota"}), "the file").get("quota", [])
    if not isinstance(rows, list):
        raise ValueError("quota is no list of tables: begin each with [[quota]]")
    if len(rows) > RULES_MAX:
        raise ValueError(f"the file has {len(rows):,} tables [[quota]], at most {RULES_MAX:,} are read")
    found: dict[str, dict[str, int]] = {}
    first: dict[tuple[str, str], int] = {}
    for number, row in enumerate(rows, 1):
        where = f"[[quota]] {number}"
        table = check_keys(row, frozenset({"subjects", *QUOTAS}), where)
        limits, subjects = _limits_of(table, where), texts_of(table, "subjects", where)
        if not subjects:
            raise ValueError(f"{where} has no subjects: want at least one, such as {_SUBJECTS}")
        if not limits:
            raise ValueError(f"{where} has no limit: want {' or '.join(QUOTAS)}, or both")
        for subject in dict.fromkeys(subjects):
            _check_subject(subject, where)
            own = found.setdefault(subject, {})
            for name, most in limits.items():
                if (before := first.setdefault((subject, name), number)) != number:
                    raise ValueError(
                        f"{where}: subject {quote(subject)} has {name} = {own[name]} in [[quota]] {before} and {most} "
                        f"here: want it once"
                    )
            own.update(limits)
    return found


def _limits_of(table: dict[str, object], where: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in QUOTAS:
        most = table.get(name)
        if most is None:
            continue
        if not isinstance(most, int) or isinstance(most, bool) or not 0 <= most <= LIMIT_MAX:
            raise ValueError(
                f"{where}: {name} is {quote(repr(most))}: want a number from 1 to {LIMIT_MAX:,}, or 0 for no limit"
            )
        found[name] = most
    return found


def _check_subject(subject: str, where: str) -> None:
    if subject.startswith(ROLE):
        if subject.removeprefix(ROLE) not in set(Role):
            raise ValueError(
                f"{where}: subject {quote(subject)} names no role: want {ROLE} and one of {', '.join(Role)}"
            )
    elif not is_subject(subject):
        raise ValueError(f"{where}: subject {quote(subject)}: want {_SUBJECTS}")


def read_quotas_file(path: str) -> ReloadedFiles[Rules]:
    """Return the rules of a file, which follow it. Raises InvalidSettings."""
    return read_parsed_file(path, "file of quotas", parse_quotas)


@dataclass(frozen=True, slots=True)
class Quotas:
    """Quotas of users: the limits of the settings, 0 for any number, and the rules that replace them."""

    submissions_per_minute: int = 0
    active_pods: int = 0
    file: ReloadedFiles[Rules] | None = None

    def has(self, quota: str) -> bool:
        """Return whether a user may have a limit."""
        return self.file is not None or self._default(quota).most > 0

    def find(self, quota: str, subjects: Collection[str]) -> Limit:
        """Return the limit of a user by its subjects."""
        return find_limit(self._rules(), quota, subjects, self._default(quota))

    def list_limits(self, caller: Caller) -> dict[str, Limit]:
        """Return the limits that a caller has, by quota."""
        if caller.kind is CallerKind.ROLE:
            return {}
        subjects = list_subjects(caller)
        found = {
            quota: self.find(quota, subjects) for quota in QUOTAS if not (caller.is_anonymous and quota == ACTIVE_PODS)
        }
        return {quota: limit for quota, limit in found.items() if limit.most}

    def _rules(self) -> Rules:
        return self.file.get() if self.file is not None else {}

    def _default(self, quota: str) -> Limit:
        most = {SUBMISSIONS: self.submissions_per_minute, ACTIVE_PODS: self.active_pods}[quota]
        return Limit(most, f"PELOTON_QUOTA_{quota.upper()}")


NO_QUOTAS = Quotas()


def list_subjects(caller: Caller) -> tuple[str, ...]:
    """Return all subjects of rules that a caller is; anonymous callers are none."""
    return () if caller.is_anonymous else (*subjects_of(caller), *list_roles(caller), ANYONE)
