"""Rules of methods: the role that a method needs, and where its pools are found in a request."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from peloton.access.caller import Role


class Find(Enum):
    """Kinds of texts in a request that lead to a pool."""

    JOB = auto()  # id of a job
    POD = auto()  # name of a pod, job-instance
    UPDATE = auto()  # id of an update of a job
    VOLUME = auto()  # id of a volume of a job
    SCHEDULE = auto()  # name of a schedule, whose jobs run in a pool
    MIGRATION = auto()  # id of a migration of a job or of a pool
    POOL = auto()  # id or path of a pool
    ABOVE = auto()  # id or path of a pool: the pool above it


class Needs(Enum):
    """Kinds of rules."""

    ROLE = auto()
    NOTHING = auto()  # open to all, without credentials
    PELOTON = auto()  # for processes of Peloton only


class Without(Enum):
    """Scope of a call whose request names no object with a pool."""

    CLUSTER = auto()  # the role is needed on the cluster
    ANYWHERE = auto()  # the role on any pool is enough: the answer has nothing of a certain pool
    FILTERED = auto()  # the role on any pool is enough: the answer has only objects that the caller may read


@dataclass(frozen=True, slots=True)
class Source:
    """A field of a request, by its path such as ``config.respoolID.value``, that leads to a pool."""

    find: Find
    field: str


@dataclass(frozen=True, slots=True)
class MethodRule:
    """The rule of one method, ``service/method`` with the first name of the service.

    The role is needed on the pools of all sources that a request sets; ``without`` says where, if it sets none.
    """

    method: str
    role: Role
    sources: tuple[Source, ...] = ()
    without: Without = Without.CLUSTER
    needs: Needs = Needs.ROLE

    @property
    def scope(self) -> str:
        """Return the scope in words, for people."""
        if self.needs is not Needs.ROLE:
            return "all callers" if self.needs is Needs.NOTHING else "processes of Peloton"
        found = [f"{source.find.name.lower()} `{source.field}`" for source in self.sources]
        rest = {
            Without.CLUSTER: "the cluster",
            Without.ANYWHERE: "any pool",
            Without.FILTERED: "any pool; the answer has only what the caller may read",
        }[self.without]
        if not found:
            return rest
        return f"the pool of {' and '.join(found)}; without: {rest}"
