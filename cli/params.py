"""Types of arguments and options: ranges, labels, lists of states, durations, pool paths."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from cli.settings import Settings
from cli.times import parse_time
from cli.wire import v0

if TYPE_CHECKING:
    from peloton.client import Client

INSTANCE_MAX = 2**31 - 1
COUNT_MAX = 2**32 - 1
DURATION_MAX_S = 100 * 365 * 86_400
DIGITS_MAX = 100  # Python refuses to parse numbers that are much longer
COMPLETION_TIMEOUT_S = 1.0

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])
InstanceRange = tuple[int, int]  # [from, to)
Label = tuple[str, str]


class ParsedType(click.ParamType[T]):
    """A type whose ``parse`` converts a text; it raises ValueError for an invalid one."""

    def convert(self, value: str | T, param: click.Parameter | None, ctx: click.Context | None) -> T:
        if not isinstance(value, str):
            return value  # already parsed
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def parse(self, text: str) -> T:
        raise NotImplementedError


class RangeType(ParsedType[InstanceRange]):
    """The type of ``FROM:TO``, half open; an empty side means from the first or to the last instance."""

    name = "FROM:TO"

    def parse(self, text: str) -> InstanceRange:
        if not (match := re.fullmatch(r"\s*(\d*)\s*:\s*(\d*)\s*", text)):
            raise ValueError(f"expected FROM:TO got '{text}'")
        start, stop = int(match[1] or 0), int(match[2] or INSTANCE_MAX)
        if max(start, stop) > INSTANCE_MAX:
            raise ValueError(f"'{text}' goes beyond {INSTANCE_MAX}")
        if start >= stop:
            raise ValueError(f"'{text}' is empty: FROM must be below TO, which is not included")
        return start, stop


class CountType(ParsedType[int]):
    """A whole number that fits into the field of the message."""

    name = "N"

    def __init__(self, least: int = 0) -> None:
        self.least = least

    def parse(self, text: str) -> int:
        if not (text.isascii() and text.isdigit()) or int(text[:DIGITS_MAX]) < self.least:
            raise ValueError(f"expected a whole number, {self.least} or more, got '{text}'")
        if len(text) > DIGITS_MAX or int(text) > COUNT_MAX:
            raise ValueError(f"{text} goes beyond {COUNT_MAX}")
        return int(text)


def together(*options: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """Combine several options into one decorator, in this order in the help."""

    def decorate(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


limit_option = click.option(
    "--limit",
    "-n",
    type=CountType(),
    help="The number of rows to print; 0: all. If absent, tables end at 1,000 with a note.",
)


CONFIG_FILE = click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True, path_type=Path)
"""A YAML file, or ``-`` for standard input."""


def pieces(text: str) -> list[str]:
    """Return the texts between commas, without blanks round them."""
    return [piece for part in text.split(",") if (piece := part.strip())]


class LabelsType(ParsedType[tuple[Label, ...]]):
    """The type of ``k=v,k2=v2``."""

    name = "K=V,..."

    def parse(self, text: str) -> tuple[Label, ...]:
        labels: list[Label] = []
        for piece in pieces(text):
            if piece.count("=") != 1:
                raise ValueError(f"Invalid label '{piece}', expected KEY=VALUE")
            key, _, value = piece.partition("=")
            labels.append((key.strip(), value.strip()))
        return tuple(labels)


class LabelType(ParsedType[Label]):
    """The type of ``key:value``, as in the original's watch; ``key=value``, as in its other commands, is accepted
    too."""

    name = "KEY:VALUE"

    def parse(self, text: str) -> Label:
        key, mark, value = text.partition(":" if ":" in text else "=")
        if not mark or not key.strip():
            raise ValueError(f"Invalid label '{text}', expected KEY:VALUE")
        return key.strip(), value.strip()


class ListType(ParsedType[tuple[str, ...]]):
    """Words separated by commas."""

    name = "A,B,..."

    def parse(self, text: str) -> tuple[str, ...]:
        return tuple(pieces(text))


class StatesType(ParsedType[tuple[str, ...]]):
    """Names of states separated by commas, in any case; ``prefix`` may be written or left out."""

    name = "STATE,..."

    def __init__(self, states: type[StrEnum] | Iterable[str], prefix: str = "") -> None:
        self.states = [str(state) for state in states]
        self.prefix = prefix

    def parse(self, text: str) -> tuple[str, ...]:
        found = []
        for piece in pieces(text):
            state = piece.upper().removeprefix(self.prefix)
            if state not in self.states:
                raise ValueError(f"invalid state '{piece}', expected one of {', '.join(self.states)}")
            found.append(state)
        return tuple(found)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        done, comma, last = incomplete.rpartition(",")
        return [
            CompletionItem(f"{done}{comma}{state}") for state in self.states if state.startswith(last.strip().upper())
        ]


class DurationType(ParsedType[float]):
    """Seconds, written as ``20s``, ``1m30s``, ``500ms``, ``1h`` or a bare number of seconds."""

    name = "DURATION"
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}  # noqa: RUF012

    def parse(self, text: str) -> float:
        piece = r"(\d+(?:\.\d+)?)(ms|s|m|h)"
        if re.fullmatch(r"\d+(\.\d+)?", text.strip()):
            seconds = float(text)
        elif re.fullmatch(f"(?:{piece})+", text.strip()):
            seconds = sum(float(number) * self.units[unit] for number, unit in re.findall(piece, text))
        else:
            raise ValueError(f"expected a duration like 20s, 1m30s or 500ms, got '{text}'")
        if seconds <= 0:
            raise ValueError("must be more than 0")
        if seconds > DURATION_MAX_S:
            raise ValueError(f"'{text}' goes beyond {DURATION_MAX_S // 3600}h")
        return seconds


class SinceType(ParsedType[datetime]):
    """A moment: a duration before now, or a time in ISO 8601, in UTC if it names no zone."""

    name = "TIME"

    def parse(self, text: str) -> datetime:
        if (moment := parse_time(text)) is not None:
            return moment
        try:
            return datetime.now(UTC) - timedelta(seconds=DURATION.parse(text))
        except (ValueError, OverflowError):
            raise ValueError(
                f"expected a duration such as 10m or a time such as 2026-01-31T08:00:00Z, got '{text}'"
            ) from None


class PoolPathType(ParsedType[str]):
    """The path of a resource pool from the root; the API completes it if it answers in time."""

    name = "POOL"

    def parse(self, text: str) -> str:
        if not text.startswith("/"):
            raise ValueError(f"path should begin with /, got '{text}'")
        return text.rstrip("/") or "/"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(path) for path in ask_to_complete(ctx, pool_paths) if path.startswith(incomplete)]


class HostnameType(click.ParamType[str]):
    """A host; the API completes it if it answers in time."""

    name = "HOST"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in ask_to_complete(ctx, hostnames) if name.startswith(incomplete)]


def pool_paths(client: Client) -> list[str]:
    pools = client.respools.Query(v0.respool.QueryRequest(), timeout=COMPLETION_TIMEOUT_S).resourcePools
    return sorted(pool.path.value for pool in pools)


def hostnames(client: Client) -> list[str]:
    hosts = client.hosts.QueryHosts(v0.host_svc.QueryHostsRequest(), timeout=COMPLETION_TIMEOUT_S)
    return sorted(info.hostname for info in hosts.host_infos)


def ask_to_complete(ctx: click.Context, ask: Callable[[Client], Sequence[T]]) -> Sequence[T]:
    """Return the answer for a completion, empty when the API is slow or down: a completion must not print errors."""
    settings = ctx.find_object(Settings) or settings_given(ctx.find_root())
    try:
        return ask(settings.client)
    except Exception:
        return ()
    finally:
        settings.close()


def settings_given(root: click.Context) -> Settings:
    """Return the addresses of the command line: the root command does not run during completion."""
    settings = Settings()
    for name in ("address", "jobmgr", "resmgr", "hostmgr"):
        if root.params.get(name):
            setattr(settings, name, str(root.params[name]))
    return settings


RANGE = RangeType()
COUNT, COUNT_FROM_1 = CountType(), CountType(1)
LABEL = LabelType()
LABELS = LabelsType()
WORDS = ListType()
DURATION = DurationType()
SINCE = SinceType()
ranges_option = click.option(
    "--range", "-r", "ranges", type=RANGE, multiple=True, help="Instances; all if absent. Repeatable."
)
range_option = click.option("--range", "-r", "instances", type=RANGE, default=":", help="Instances; all if absent.")
POOL_PATH = PoolPathType()
HOSTNAME = HostnameType()
