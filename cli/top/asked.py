"""What is typed behind ``/``: words, and conditions such as ``state:failed``, which the API is asked for."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cli.job.query import JOB_STATES
from cli.params import COUNT, LABELS, POOL_PATH, WORDS
from cli.queries import JobConditions
from cli.task.group import TASK_STATES
from peloton.model.job import JOB_TERMINAL

PAGE_ROWS = 200
"""Jobs, or instances of a job, that are asked for at a time."""
ACTIVE = "active"
ACTIVE_STATES = ",".join(state for state in JOB_STATES.states if state not in JOB_TERMINAL and state != "UNKNOWN")
JOB_KEYS = ("state", "pool", "owner", "label", "days")
INSTANCE_KEYS = ("state", "host")


class Order(NamedTuple):
    """``falls``: whether the greatest comes first."""

    title: str
    field: str
    falls: bool

    @property
    def word(self) -> str:
        return "DESC" if self.falls else "ASC"


JOB_ORDERS = (
    Order("newest", "creation_time", True),
    Order("name", "name", False),
    Order("state", "state", False),
    Order("owner", "owner", False),
    Order("instances", "instance_count", True),
)
INSTANCE_ORDERS = (
    Order("instance", "instanceId", False),
    Order("state", "state", False),
    Order("host", "host", False),
    Order("latest start", "creation_time", True),
)


@dataclass(frozen=True)
class InstanceConditions:
    states: tuple[str, ...]
    hosts: tuple[str, ...]
    offset: int
    order: Order


def split_text(text: str, keys: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Conditions by key, and the other words. Raises ValueError for a key that is not known."""
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


def jobs_asked(text: str, order: Order, offset: int = 0, pool: str | None = None) -> JobConditions:
    """Words that are no conditions are the part of a name. ``pool``: the only one whose jobs are asked for. Raises
    ValueError."""
    conditions, words = split_text(text, JOB_KEYS if pool is None else [key for key in JOB_KEYS if key != "pool"])
    states = conditions.get("state", "")
    path = conditions.get("pool", "")
    return JobConditions(
        labels=LABELS.parse(conditions.get("label", "")),
        respool=pool or (POOL_PATH.parse(path) if path else None),
        keywords=(),
        states=JOB_STATES.parse(ACTIVE_STATES if states.lower() == ACTIVE else states),
        owner=conditions.get("owner", ""),
        name=" ".join(words),
        timerange=COUNT.parse(conditions.get("days", "0")),
        limit=PAGE_ROWS,
        total=None,
        offset=offset,
        sort=(order.field,),
        sortorder=order.word,
    )


def instances_asked(text: str, order: Order, offset: int = 0) -> InstanceConditions:
    """Words that are no conditions are states, too. Raises ValueError."""
    conditions, words = split_text(text, INSTANCE_KEYS)
    states = ",".join([*words, *filter(None, [conditions.get("state")])])
    return InstanceConditions(TASK_STATES.parse(states), WORDS.parse(conditions.get("host", "")), offset, order)


def job_line(asked: JobConditions) -> str:
    """The command that asks the same."""
    options: list[tuple[str, str]] = [
        ("-s", ",".join(asked.states)),
        ("-r", asked.respool or ""),
        ("--owner", asked.owner),
        ("-l", ",".join(f"{key}={value}" for key, value in asked.labels)),
        ("--name", asked.name),
        ("-d", str(asked.timerange or "")),
        ("-n", str(asked.limit)),
        ("--offset", str(asked.offset or "")),
        ("-p", ",".join(asked.sort)),
        ("-a", asked.sortorder),
    ]
    return command("job query", options)


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
    """Options without a value are left out."""
    return " ".join([words, *(f"{name} {shlex.quote(value)}" for name, value in options if value)])


def matches(text: str, *texts: str) -> bool:
    """Whether each word of ``text`` is in one of these, in any case."""
    where = "\n".join(texts).lower()
    return all(word in where for word in text.lower().split())
