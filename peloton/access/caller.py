"""Callers of the API, and what they may do: roles, on pools or on the cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

CLUSTER = "/"
"""Path of the root pool. A role granted there counts in all pools, and for calls about the cluster as a whole."""


class CallerKind(StrEnum):
    USER = "user"
    SERVICE = "service"  # a program of a user, such as a pipeline
    ROLE = "role"  # another process of Peloton
    ANONYMOUS = "anonymous"


class Role(StrEnum):
    """Roles. Each of the first four includes those before it."""

    READER = "reader"  # reads jobs, pods, logs
    SUBMITTER = "submitter"  # creates, changes and ends jobs, and runs commands in their pods
    OPERATOR = "operator"  # changes the pools below, migrates jobs, deletes events
    ADMIN = "admin"  # hosts, lockdowns, workers: on the cluster only
    PROXY = "proxy"  # calls on behalf of users, and does nothing by itself: on the cluster only

    def includes(self, other: Role) -> bool:
        """Return whether a caller with this role has the other one, too."""
        if Role.PROXY in (self, other):
            return self is other
        return _RANKS[self] >= _RANKS[other]


_RANKS = {Role.READER: 1, Role.SUBMITTER: 2, Role.OPERATOR: 3, Role.ADMIN: 4}
CLUSTER_ROLES = frozenset({Role.ADMIN, Role.PROXY})


@dataclass(frozen=True, slots=True)
class Grant:
    """A role on a pool and all pools below it."""

    role: Role
    pool: str = CLUSTER

    def covers(self, pool: str) -> bool:
        return is_below(pool, self.pool)

    def __str__(self) -> str:
        return f"{self.role} on {self.pool}"


@dataclass(frozen=True, slots=True)
class MethodList:
    """Methods that a role of the original's file accepts and rejects: ``*``, or ``service/method`` with ``*`` in it."""

    role: str
    accept: tuple[str, ...]
    reject: tuple[str, ...] = ()

    def find_accepting(self, method: str) -> str:
        """Return the pattern that accepts the method, or ""."""
        return _find_matching(self.accept, method)

    def find_rejecting(self, method: str) -> str:
        """Return the pattern that rejects the method, or ""."""
        return _find_matching(self.reject, method)


def _find_matching(patterns: Iterable[str], method: str) -> str:
    return next((pattern for pattern in patterns if fnmatchcase(method, pattern)), "")


@dataclass(frozen=True, slots=True)
class Caller:
    """The identity of a request.

    ``issuer`` says where it was proven: a file, an OIDC issuer, a certificate. ``token_id`` is public. ``via`` names
    the caller that called on behalf of this one. ``methods`` come from the original's file of users and roles.
    ``expires_s`` is the Unix time at which the credentials expire; 0: never, or not known.
    """

    name: str
    kind: CallerKind
    groups: tuple[str, ...] = ()
    issuer: str = ""
    token_id: str = ""
    via: str = ""
    grants: tuple[Grant, ...] = ()
    methods: MethodList | None = None
    expires_s: float = 0.0

    @property
    def is_anonymous(self) -> bool:
        return self.kind is CallerKind.ANONYMOUS

    def has(self, role: Role, pool: str = CLUSTER) -> bool:
        return any(grant.role.includes(role) and grant.covers(pool) for grant in self.grants)

    def has_anywhere(self, role: Role) -> bool:
        return any(grant.role.includes(role) for grant in self.grants)

    def pools_with(self, role: Role) -> tuple[str, ...]:
        """Return the highest pools on which the caller has the role, by path."""
        pools = sorted({grant.pool for grant in self.grants if grant.role.includes(role)})
        return tuple(pool for pool in pools if not any(is_below(pool, other) for other in pools if other != pool))

    def __str__(self) -> str:
        shown = f'{self.kind} "{self.name}"' if not self.is_anonymous else "an anonymous caller"
        return f"{shown} (by {self.via})" if self.via else shown


def is_below(pool: str, above: str) -> bool:
    """Return whether a pool is the other one or lies below it."""
    return above == CLUSTER or pool == above or pool.startswith(f"{above}/")


ANONYMOUS = Caller("anonymous", CallerKind.ANONYMOUS)
UNRESTRICTED = Caller("anonymous", CallerKind.ANONYMOUS, grants=(Grant(Role.ADMIN),))
"""The caller of a cluster that asks for no credentials."""
