"""The text of docs/settings.md, which ``python -m cli.reference`` writes."""

from __future__ import annotations

from services.other_variables import OTHER_PREFIXES, OTHER_VARIABLES
from services.setting_rules import Setting, Together
from services.settings_table import SETTINGS, TOGETHER

OPENING = """# Settings

Generated from the table of settings by `python -m cli.reference`; do not edit.

Roles read their settings once, at the start, from three sources:

1. **Environment**: the variable in the table below.
2. **File**: TOML, which `PELOTON_CONFIG` or `--config` of `peloton serve` names. Its keys are the names of the
   variables in lower case, without `PELOTON_`: `leader_ttl_s = 5.0`. One file may serve all roles.
3. **Default**.

The environment has precedence over the file, and the file over the default. `peloton settings` prints what holds, and
from where, with the passwords of URLs masked; `--role hostmgr` prints the settings of one role, and `--json` all
columns of the table.

**Settings that break a rule end the process with exit code 2 before anything starts**, with a line for each fault that
names the setting, its value, its source and the rule. Numbers have bounds, which are included; `nan` and `inf` are
refused; a variable that is set and empty is refused where the table does not say what empty means. A variable with the
prefix `PELOTON_` that is in no table of this page is refused with the nearest known name, and so is an unknown key of
the file. In Kubernetes set `enableServiceLinks: false`, as deploy/ does, because a Service with the name `peloton`
would set such variables.

The names have units: `_S` is seconds, `_MS` milliseconds, `_PERCENT` percent. `peloton up` sets the addresses, ports
and the database of its parts itself, and has shorter periods than the defaults below; variables and keys of the file
that the user sets take precedence over the periods.

"""
OTHERS = """
## Rules for several settings

{together}

## Other variables

Commands, pods and tests read these; roles ignore them.

| variable | read by |
|---|---|
"""


def page() -> str:
    lines = ["| variable | default | values | roles | meaning |", "|---|---|---|---|---|", *map(row, SETTINGS.values())]
    others = {**OTHER_VARIABLES, **{f"{prefix}*": meaning for prefix, meaning in OTHER_PREFIXES.items()}}
    rows = [f"| `{name}` | {meaning} |" for name, meaning in others.items()]
    others_text = OTHERS.replace("{together}", "\n".join(map(describe, TOGETHER)))
    return "\n".join([OPENING + lines[0], *lines[1:], others_text + rows[0], *rows[1:], ""])


def describe(rule: Together) -> str:
    return f"* {', '.join(f'`{SETTINGS[name].variable}`' for name in rule.names)}: {rule.wanted}."


def row(setting: Setting) -> str:
    default = str(setting.default).lower() if setting.kind == "bool" else setting.default
    shown = "empty" if default == "" else f"`{default}`"
    wanted = setting.wanted.replace("PELOTON_MESOS_TLS=true", "`PELOTON_MESOS_TLS=true`")
    readers = ", ".join(setting.rule.readers)
    return f"| `{setting.variable}` | {shown} | {wanted} | {readers} | {setting.rule.help} |"
