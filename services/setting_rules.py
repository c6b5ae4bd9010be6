"""Rules of settings: the form, the bounds and the readers of each one, and the conversion of the given values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field
from typing import Any, NamedTuple, TypeVar

PREFIX = "PELOTON_"
ROLES = ("api", "worker", "resmgr", "hostmgr", "web", "aurorabridge")
CLI = "cli"
"""Commands that read logs and open sessions reach agents themselves, by settings of the host manager."""
ALL = " ".join(ROLES)
BRIDGE = "aurorabridge"
SERVERS = "api worker resmgr hostmgr"
AGENTS = f"hostmgr web {CLI}"
DAY_S = 24 * 3600
WEEK_S = 7 * DAY_S
PORT_MAX = 65_535

Value = TypeVar("Value")
_PASSWORD = re.compile(r"(://[^:/@\s]*:).*@")
_SECRET_ARGUMENT = re.compile(r"(?i)([?&](?:password|passwd|token|secret|api_?key)=)[^&\s]*")
_UNITS = {"_s": "seconds", "_ms": "milliseconds", "_bytes": "bytes", "_percent": "percent"}


class Form(NamedTuple):
    """The form of a text: the words for people, and the test of a text that is not empty."""

    wanted: str
    is_valid: Callable[[str], object]


def pattern(wanted: str, expression: str) -> Form:
    return Form(wanted, re.compile(expression, re.ASCII).fullmatch)


def is_address(text: str) -> bool:
    """Return whether the text is HOST:PORT."""
    host, _, port = text.rpartition(":")
    return bool(re.fullmatch(r"[^\s:/@,]+|\[[0-9A-Fa-f:.]+\]", host)) and port.isdecimal() and 0 < int(port) <= PORT_MAX


def is_cluster_name(text: str) -> bool:
    from peloton.model.ids import hostmgr_role

    try:
        return bool(hostmgr_role(text))
    except ValueError:
        return False


ADDRESS = Form("HOST:PORT", is_address)
ADDRESSES = Form(
    "HOST:PORT, or several with commas", lambda text: all(is_address(each.strip()) for each in text.split(","))
)
URL = pattern("http://HOST:PORT/PATH or https://...", r"https?://[^\s/]\S*")
ENDPOINT = Form("http://HOST:PORT or HOST:PORT", lambda text: is_address(text) or URL.is_valid(text))
DATABASE_URL = pattern(
    "sqlite:///FILE or postgresql+psycopg://USER:PASSWORD@HOST/NAME", r"(sqlite|postgresql)(\+\w+)?://\S*"
)
MASTER = Form(
    "HOST:PORT or zk://HOSTS/PATH; for TLS set PELOTON_MESOS_TLS=true",
    lambda text: is_address(text) or re.fullmatch(r"zk://\S+", text),
)
ZOOKEEPER = pattern("zk://HOST:PORT,HOST:PORT/PATH", r"zk://[^\s/]+(/[^\s/]+)+")
POOL_PATH = pattern("/PATH of a pool", r"(/[^\s/]+)+")
CLUSTER = Form("at most 63 letters, digits, dots, dashes and underscores, the first a letter or digit", is_cluster_name)
WORD = pattern("text without blanks", r"\S+")


def one_of(*words: str) -> Form:
    return Form(f"{', '.join(words[:-1])} or {words[-1]}", words.__contains__)


def setting(
    default: Value,
    readers: str,
    help_text: str,
    *,
    low: float | None = None,
    high: float | None = None,
    form: Form | None = None,
    may_be_empty: bool = False,
) -> Value:
    """Return a field of the table: its readers are roles, with blanks between; a text that is empty by default may be
    empty. Numbers have bounds, which are included.
    """
    rule = Rule(help_text, tuple(readers.split()), low, high, form, may_be_empty or default == "")
    return field(default=default, metadata={"rule": rule})


@dataclass(frozen=True)
class Rule:
    help: str
    readers: tuple[str, ...]
    low: float | None
    high: float | None
    form: Form | None
    may_be_empty: bool


@dataclass(frozen=True)
class Setting:
    """A row of the table."""

    name: str
    kind: str  # int, float, bool or str
    default: Any
    rule: Rule

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()

    @property
    def unit(self) -> str:
        """Return the unit, which is the last part of the name; empty: it has none."""
        return next((unit for suffix, unit in _UNITS.items() if self.name.endswith(suffix)), "")

    @property
    def plain_help(self) -> str:
        """Return the help without the marks and links of Markdown."""
        return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", self.rule.help).replace("`", "")

    @property
    def wanted(self) -> str:
        """Return the values that the setting takes, in words."""
        if self.kind == "bool":
            return "true or false"
        if self.kind == "str":
            return self.rule.form.wanted if self.rule.form else "text"
        unit = self.unit or "a number"
        if self.kind == "int":
            unit = f"whole {unit}" if self.unit else "a whole number"
        return f"{unit} from {self.rule.low:,} to {self.rule.high:,}"

    def convert(self, given: Any) -> Any:
        """Return the value: ``given`` is the text of a variable or a value of a file. Raises ValueError."""
        value = self._of_kind(given)
        if isinstance(value, str):
            form = self.rule.form
            is_valid = form.is_valid(value) if value and form else value or self.rule.may_be_empty
        elif isinstance(value, bool):
            is_valid = True
        else:
            assert self.rule.low is not None, self.name
            assert self.rule.high is not None, self.name
            is_valid = math.isfinite(value) and self.rule.low <= value <= self.rule.high
        if not is_valid:
            raise ValueError
        return value

    def _of_kind(self, given: Any) -> Any:
        if self.kind == "bool":
            found = {"true": True, "false": False}.get(given.lower()) if isinstance(given, str) else given
        elif self.kind == "str" or isinstance(given, bool):
            found = given
        else:
            found = (int if self.kind == "int" and not isinstance(given, float) else float)(given)
        is_right = type(found).__name__ == self.kind
        if not is_right:
            raise ValueError
        return found


def setting_of(spec: Field[Any]) -> Setting:
    return Setting(spec.name, str(spec.type), spec.default, spec.metadata["rule"])


def mask(value: Any) -> Any:
    """Return the value without the passwords of a URL."""
    if not isinstance(value, str):
        return value
    return _SECRET_ARGUMENT.sub(r"\1***", _PASSWORD.sub(r"\1***@", value))


class Together(NamedTuple):
    """A rule for several settings at a time."""

    names: tuple[str, ...]
    is_met: Callable[..., bool]
    wanted: str

    def holds(self, values: Mapping[str, Any]) -> bool:
        return self.is_met(*(values[name] for name in self.names))


def is_ascending(first: float, second: float) -> bool:
    return first <= second


def is_less(first: float, second: float) -> bool:
    return first < second


def is_ascending_or_off(first: float, second: float) -> bool:
    return not first or not second or first <= second
