"""The filter typed after ``/``: words, and conditions such as ``state:failed``, which the API applies."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cli.job.query import JOB_STATES
from cli.job.table import TYPES
from cli.params import LABELS, POOL_PATH, SINCE, WORDS, Label
from cli.task.group import TASK_STATES
from peloton.model.job import JOB_TERMINAL

PAGE_ROWS = 200
"""Number of jobs, or of instances of a job, on one page."""
ACTIVE = "active"
ACTIVE_STATES = ",".join(state for state in JOB_STATES.states if state not in JOB_TERMINAL and state != "UNKNOWN")
JOB_KEYS = ("state", "pool", "owner", "type", "label", "since")
INSTANCE_KEYS = ("state", "host")


class Order(NamedTuple):
    """An order of rows. ``falls``: whether the greatest comes first."""

    title: str
    field: str
    falls: bool

    @property
    def word(self) -> str:
        return "DESC" if self.falls else "ASC"


JOB_ORDERS = (Order("newest", "creation_time", True), Order("oldest", "creation_time", False))
INSTANCE_ORDERS = (
    Order("instance", "instanceId", False),
    Order("state", "state", False),
    Order("host", "host", False),
    Order("latest start", "creation_time", True),
)


@dataclass(frozen=True)
class JobConditions:
    """The filter of jobs. ``since`` is as typed, such as ``24h``; ``token`` names the page, "" is the first one."""

    pool: str
    states: tuple[str, ...]
    types: tuple[str, ...]
    owner: str
    labels: tuple[Label, ...]
    name: str
    since: str
    order: Order
    token: str = ""


@dataclass(frozen=True)
class InstanceConditions:
    states: tuple[str, ...]
    hosts: tuple[str, ...]
    offset: int
    order: Order


def split_text(text: str, keys: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Split a filter into conditions by key, and the other words. Raises ValueError for an unknown key."""
    conditions: dict[str, str] = {}
    words = []
    for word in text.split():
        key, colon, value = word.partition(":")
        if not colon:
            words.append(word)
        elif key not in keys:
            raise ValueError(f"unknown condition '{key}:', expected one of {', '.join(f'{each}:' for each in keys)}")
        elif value:
            conditions[key] = value
    return conditions, words


def jobs_asked(text: str, order: Order, token: str = "", pool: str = "") -> JobConditions:
    """Parse a filter of jobs; words that are no conditions are part of the name. Raises ValueError.

    ``pool``: the pool that all jobs have to be in.
    """
    conditions, words = split_text(text, [key for key in JOB_KEYS if key != "pool" or not pool])
    states, path = conditions.get("state", ""), conditions.get("pool", "")
    if since := conditions.get("since", ""):
        SINCE.parse(since)
    return JobConditions(
        pool=pool or (POOL_PATH.parse(path) if path else ""),
        states=JOB_STATES.parse(ACTIVE_STATES if states.lower() == ACTIVE else states),
        types=TYPES.parse(conditions.get("type", "")),
        owner=conditions.get("owner", ""),
        labels=LABELS.parse(conditions.get("label", "")),
        name=" ".join(words),
        since=since,
        order=order,
        token=token,
    )


def instances_asked(text: str, order: Order, offset: int = 0) -> InstanceConditions:
    """Parse a filter of instances; words that are no conditions are states. Raises ValueError."""
    conditions, words = split_text(text, INSTANCE_KEYS)
    states = ",".join([*words, *filter(None, [conditions.get("state")])])
    return InstanceConditions(TASK_STATES.parse(states), WORDS.parse(conditions.get("host", "")), offset, order)


def job_line(asked: JobConditions) -> str:
    """Return the command line with the same result."""
    options: list[tuple[str, str]] = [
        ("-r", asked.pool),
        ("-s", ",".join(asked.states)),
        ("-t", ",".join(asked.types)),
        ("--owner", asked.owner),
        ("-l", ",".join(f"{key}={value}" for key, value in asked.labels)),
        ("--name", asked.name),
        ("--since", asked.since),
        ("-n", str(PAGE_ROWS)),
        ("--token", asked.token),
    ]
    return command("job table" if asked.order.falls else "job table --oldest-first", options)


def instance_line(job_id: str, asked: InstanceConditions) -> str:
    options: list[tuple[str, str]] = [
        ("-s", ",".join(asked.states)),
        ("--hosts", ",".join(asked.hosts)),
        ("-n", str(PAGE_ROWS)),
        ("--offset", str(asked.offset or "")),
        ("-p", asked.order.field),
        ("-a", asked.order.word),
    ]
    return command(f"task query {shlex.quote(job_id)}", options)


def command(words: str, options: Iterable[tuple[str, str]] = ()) -> str:
    """Return a command line; options without a value are left out."""
    return " ".join([words, *(f"{name} {shlex.quote(value)}" for name, value in options if value)])


def matches(text: str, *texts: str) -> bool:
    """Return whether each word of ``text`` is in one of these texts, in any case."""
    where = "\n".join(texts).lower()
    return all(word in where for word in text.lower().split())
