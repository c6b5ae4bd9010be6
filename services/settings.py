"""Settings of all roles, read from the environment and a file into one frozen value per process. No other module reads
these variables.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from peloton.errors import InvalidArgument, InvalidSettings
from peloton.files import read_text_file
from services.other_variables import CONFIG, OTHER_PREFIXES, OTHER_VARIABLES
from services.setting_rules import PREFIX, Setting, Together, mask
from services.settings_table import SETTINGS, TOGETHER
from services.settings_table import Settings as Settings

DEFAULT = "default"
ENVIRONMENT = "environment"


class Found(NamedTuple):
    """A setting as it was given."""

    value: Any
    label: str  # the name that it has at its source
    source: str  # DEFAULT, ENVIRONMENT, or the path of a file

    def __str__(self) -> str:
        shown = str(self.value).lower() if isinstance(self.value, bool) else mask(self.value)
        quoted = repr(shown) if isinstance(shown, str) and not is_plain(shown) else shown
        return f"{self.label}={quoted} ({self.source})"


def load(environment: Mapping[str, str] = os.environ, config: str = "") -> Settings:
    """Read the settings: the environment has precedence over the file, which ``config`` or PELOTON_CONFIG names.

    Raises InvalidSettings with all faults: unknown names, and values out of bounds.
    """
    return Settings(**{name: found.value for name, found in find(environment, config).items()})


def find(environment: Mapping[str, str] = os.environ, config: str = "") -> dict[str, Found]:
    """Return each setting with its source. Raises InvalidSettings with all faults."""
    given, faults = find_given(environment, config)
    found = {name: Found(setting.default, setting.variable, DEFAULT) for name, setting in SETTINGS.items()}
    for name, one in given.items():
        try:
            found[name] = one._replace(value=SETTINGS[name].convert(one.value))
        except (ValueError, TypeError, OverflowError):
            faults.append(fault_of(SETTINGS[name], one))
    if not faults:
        values = {name: one.value for name, one in found.items()}
        faults = [fault_together(rule, found) for rule in TOGETHER if not rule.holds(values)]
    if faults:
        raise InvalidSettings("\n".join(faults))
    return found


def find_given(environment: Mapping[str, str] = os.environ, config: str = "") -> tuple[dict[str, Found], list[str]]:
    """Return the settings that the file or the environment has, as they are there, and the faults of names."""
    given, faults = {}, []
    path = config or environment.get(CONFIG, "")
    for key, value in read_file(path).items() if path else ():
        if key in SETTINGS:
            given[key] = Found(value, key, path)
        else:
            faults.append(f"{key} ({path}): unknown setting{nearest(key, SETTINGS)}")
    variables = {setting.variable: name for name, setting in SETTINGS.items()}
    for variable in sorted(environment):
        if variable in variables:
            given[variables[variable]] = Found(environment[variable], variable, ENVIRONMENT)
        elif is_unknown(variable):
            faults.append(
                f"{variable} ({ENVIRONMENT}): unknown setting{nearest(variable, [*variables, *OTHER_VARIABLES])}"
            )
    return given, faults


def list_given(environment: Mapping[str, str] = os.environ) -> set[str]:
    """Return the variables of the settings that the environment or its file has."""
    given, _ = find_given(environment)
    return {SETTINGS[name].variable for name in given}


def is_unknown(variable: str) -> bool:
    """Return whether a variable has the prefix of settings, and no meaning."""
    return (
        variable.startswith(PREFIX)
        and variable not in OTHER_VARIABLES
        and not variable.startswith(tuple(OTHER_PREFIXES))
    )


def read_file(path: str) -> dict[str, Any]:
    """Read a TOML file. Raises InvalidSettings."""
    import tomllib

    try:
        return tomllib.loads(read_text_file(path, "file of settings"))
    except OSError as error:
        raise InvalidSettings(f"{path}: the file of settings cannot be read: {error.strerror}") from None
    except InvalidArgument as error:
        raise InvalidSettings(error.message) from None
    except (ValueError, RecursionError) as error:
        raise InvalidSettings(f"{path}: the file of settings is not TOML: {error}") from None


def nearest(name: str, known: Mapping[str, object] | list[str]) -> str:
    from difflib import get_close_matches

    found = get_close_matches(name, known, n=1)
    return f"; did you mean {found[0]}?" if found else "; `peloton settings` lists all"


def is_plain(text: str) -> bool:
    return bool(text) and text.isprintable() and not any(mark in text for mark in " '\"")


def fault_of(setting: Setting, given: Found) -> str:
    if given.value == "":
        return f"{given.label} ({given.source}) is empty: want {setting.wanted}"
    return f"{given}: want {setting.wanted}"


def fault_together(rule: Together, found: Mapping[str, Found]) -> str:
    return f"{', '.join(str(found[name]) for name in rule.names)}: want {rule.wanted}"
