"""Types of arguments and options: ranges, labels, lists of states, durations, pool paths."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from cli.settings import Settings
from cli.times import parse_time
from cli.wire import v0

INSTANCE_MAX = 2**31 - 1
COUNT_MAX = 2**32 - 1
DIGITS_MAX = 100  # of more, Python refuses to say which number it is
COMPLETION_TIMEOUT_S = 1.0

InstanceRange = tuple[int, int]  # [from, to)
Label = tuple[str, str]


class RangeType(click.ParamType[InstanceRange]):
    """``FROM:TO``, half open; an empty side means from the first or to the last instance."""

    name = "FROM:TO"

    def convert(
        self, value: str | InstanceRange, param: click.Parameter | None, ctx: click.Context | None
    ) -> InstanceRange:
        if isinstance(value, tuple):
            return value
        if not (match := re.fullmatch(r"\s*(\d*)\s*:\s*(\d*)\s*", value)):
            self.fail(f"expected FROM:TO got '{value}'", param, ctx)
        start, stop = int(match[1] or 0), int(match[2] or INSTANCE_MAX)
        if max(start, stop) > INSTANCE_MAX:
            self.fail(f"'{value}' goes beyond {INSTANCE_MAX}", param, ctx)
        if start >= stop:
            self.fail(f"'{value}' is empty: FROM must be below TO, which is not included", param, ctx)
        return start, stop


class CountType(click.ParamType[int]):
    """A number of instances or of failures, as far as the wire can say it."""

    name = "N"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if not (value.isascii() and value.isdigit()):
            self.fail(f"expected a whole number, 0 or more, got '{value}'", param, ctx)
        if len(value) > DIGITS_MAX or int(value) > COUNT_MAX:
            self.fail(f"{value} goes beyond {COUNT_MAX}", param, ctx)
        return int(value)


limit_option = click.option(
    "--limit", "-n", type=CountType(), help="How many to print; 0: all. If absent, tables stop at 1,000 and say so."
)


CONFIG_FILE = click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True, path_type=Path)
"""A YAML file, or ``-`` for standard input."""


class LabelsType(click.ParamType[tuple[Label, ...]]):
    """``k=v,k2=v2``."""

    name = "K=V,..."

    def convert(
        self, value: str | tuple[Label, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Label, ...]:
        if isinstance(value, tuple):
            return value
        labels: list[Label] = []
        for piece in filter(None, (part.strip() for part in value.split(","))):
            if piece.count("=") != 1:
                self.fail(f"Invalid label '{piece}', expected KEY=VALUE", param, ctx)
            key, _, text = piece.partition("=")
            labels.append((key.strip(), text.strip()))
        return tuple(labels)


class LabelType(click.ParamType[Label]):
    """``key:value``, as the original's watch has it; ``key=value``, as its other commands have it, is taken too."""

    name = "KEY:VALUE"

    def convert(self, value: str | Label, param: click.Parameter | None, ctx: click.Context | None) -> Label:
        if isinstance(value, tuple):
            return value
        key, mark, text = value.partition(":" if ":" in value else "=")
        if not mark or not key.strip():
            self.fail(f"Invalid label '{value}', expected KEY:VALUE", param, ctx)
        return key.strip(), text.strip()


class ListType(click.ParamType[tuple[str, ...]]):
    """Words separated by commas."""

    name = "A,B,..."

    def convert(
        self, value: str | tuple[str, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(filter(None, (part.strip() for part in value.split(","))))


class StatesType(click.ParamType[tuple[str, ...]]):
    """Names of states separated by commas, in any case; ``prefix`` may be written or left out."""

    name = "STATE,..."

    def __init__(self, states: type[StrEnum] | Iterable[str], prefix: str = "") -> None:
        self.states = [str(state) for state in states]
        self.prefix = prefix

    def convert(
        self, value: str | tuple[str, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        found = []
        for piece in filter(None, (part.strip() for part in value.split(","))):
            state = piece.upper().removeprefix(self.prefix)
            if state not in self.states:
                self.fail(f"invalid state '{piece}', expected one of {', '.join(self.states)}", param, ctx)
            found.append(state)
        return tuple(found)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        done, comma, last = incomplete.rpartition(",")
        return [
            CompletionItem(f"{done}{comma}{state}") for state in self.states if state.startswith(last.strip().upper())
        ]


class DurationType(click.ParamType[float]):
    """Seconds, written as ``20s``, ``1m30s``, ``500ms``, ``1h`` or a bare number of seconds."""

    name = "DURATION"
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}  # noqa: RUF012

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, (int, float)):
            return float(value)
        text = value.strip()
        piece = r"(\d+(?:\.\d+)?)(ms|s|m|h)"
        if re.fullmatch(r"\d+(\.\d+)?", text):
            seconds = float(text)
        elif re.fullmatch(f"(?:{piece})+", text):
            seconds = sum(float(number) * self.units[unit] for number, unit in re.findall(piece, text))
        else:
            self.fail(f"expected a duration like 20s, 1m30s or 500ms, got '{value}'", param, ctx)
        if seconds <= 0:
            self.fail("must be more than 0", param, ctx)
        return seconds


class SinceType(click.ParamType[datetime]):
    """A moment: a duration before now, or a time in ISO 8601, in UTC where it names no zone."""

    name = "TIME"

    def convert(self, value: str | datetime, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        if (moment := parse_time(value)) is not None:
            return moment
        try:
            return datetime.now(UTC) - timedelta(seconds=DURATION.convert(value, param, ctx))
        except (click.UsageError, OverflowError):
            self.fail(
                f"expected a duration such as 10m or a time such as 2026-01-31T08:00:00Z, got '{value}'", param, ctx
            )


class PoolPathType(click.ParamType[str]):
    """The path of a resource pool from the root; completed by asking the API when it answers at once."""

    name = "POOL"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value.startswith("/"):
            self.fail(f"path should begin with /, got '{value}'", param, ctx)
        return value.rstrip("/") or "/"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(path) for path in known_pool_paths(ctx) if path.startswith(incomplete)]


def known_pool_paths(ctx: click.Context) -> list[str]:
    """Paths of all pools; none when the API is slow or down, because a completion must not print errors."""
    settings = ctx.find_object(Settings) or settings_given(ctx.find_root())
    try:
        pools = settings.client.respools.Query(v0.respool.QueryRequest(), timeout=COMPLETION_TIMEOUT_S).resourcePools
    except Exception:
        return []
    finally:
        settings.close()
    return sorted(pool.path.value for pool in pools)


class HostnameType(click.ParamType[str]):
    """A host, completed by asking the API when it answers at once."""

    name = "HOST"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in known_hostnames(ctx) if name.startswith(incomplete)]


def known_hostnames(ctx: click.Context) -> list[str]:
    """As ``known_pool_paths``."""
    settings = ctx.find_object(Settings) or settings_given(ctx.find_root())
    try:
        hosts = settings.client.hosts.QueryHosts(v0.host_svc.QueryHostsRequest(), timeout=COMPLETION_TIMEOUT_S)
    except Exception:
        return []
    finally:
        settings.close()
    return sorted(info.hostname for info in hosts.host_infos)


def settings_given(root: click.Context) -> Settings:
    """The addresses on the command line; completing, the root command itself is not run."""
    settings = Settings()
    for name in ("address", "jobmgr", "resmgr", "hostmgr"):
        if root.params.get(name):
            setattr(settings, name, str(root.params[name]))
    return settings


RANGE = RangeType()
COUNT = CountType()
LABEL = LabelType()
LABELS = LabelsType()
WORDS = ListType()
DURATION = DurationType()
SINCE = SinceType()
POOL_PATH = PoolPathType()
HOSTNAME = HostnameType()
