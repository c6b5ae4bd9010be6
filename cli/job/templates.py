"""``peloton job create --template``: templates of job files for distributed learning.

A template is the file ``examples/learning/templates/NAME.yaml``. The option replaces the value of a line ``key: value
# --option``; a line ``# key: value  # --option`` is a comment unless the option is given. ``--print`` writes the file
from which the job would be created.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from cli.examples import EXAMPLES
from cli.params import CountType, Function, together

FOLDER = EXAMPLES / "learning" / "templates"
OPTIONS = ["name", "count", "min-count", "cpus", "memory", "gpus", "image", "python", "program", "checkpoints"]
"""The options that set lines, by their names without dashes."""
NEEDED = "program"
"""The option without which no job is created from a template: its value in the file is a placeholder."""
IMAGE = "image"
"""The option that replaces only a part of the value of its line: its name in capitals."""
GANG_MIN = 2
_LINE = re.compile(r"(?P<key>\s*(?:# )?\w+: )(?P<value>.*?)(?P<mark>  # --(?P<option>[\w-]+))$")


def template_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def template_options(function: Function) -> Function:
    """Add the options of templates; the command receives those that are given as ``changes``, by name."""

    def store(ctx: click.Context, option: click.Parameter, value: Any) -> None:
        if value is not None:
            assert option.name is not None
            ctx.meta.setdefault(__name__, {})[option.name.replace("_", "-")] = value

    def template_option(name: str, kind: click.ParamType[Any] | type, text: str, **rest: Any) -> Any:
        assert name in OPTIONS
        return click.option(
            f"--{name}", type=kind, help=f"Of a template: {text}", callback=store, expose_value=False, **rest
        )

    amount = click.FloatRange(min=0, max=1e6)
    return together(
        click.option(
            "--template",
            type=click.Choice(template_names()),
            help="Take this template for distributed learning instead of a file.",
        ),
        click.option(
            "--print", "prints", is_flag=True, help="Print the template's file, to change it; create nothing."
        ),
        template_option("name", str, "the job's name."),
        template_option("count", CountType(1), "the number of pods."),
        template_option("min-count", CountType(GANG_MIN), "the pods that start as a whole; others come and go."),
        template_option("cpus", amount, "CPUs of each pod."),
        template_option("memory", CountType(1), "MiB of memory of each pod.", metavar="MIB"),
        template_option("gpus", amount, "GPUs of each pod."),
        template_option("image", str, "the image of its containers, which Kubernetes needs.", metavar="IMAGE"),
        template_option("python", str, "the interpreter that has the framework.", metavar="PATH"),
        template_option("program", str, "the program and its arguments.", metavar="TEXT"),
        template_option("checkpoints", str, "a folder of all hosts.", metavar="PATH"),
    )(function)


def read_changes() -> Mapping[str, Any]:
    changes: Mapping[str, Any] = click.get_current_context().meta.get(__name__, {})
    return changes


def choose_config(config: Path | None, template: str | None, prints: bool) -> Path | str:
    """Return the file of the job, or the text of the template with the options. Raises UsageError."""
    changes = read_changes()
    if template is None:
        if changes or prints:
            option = next(iter(changes), "print")
            raise click.UsageError(f"--{option} is an option of templates: give --template as well")
        if config is None:
            raise click.UsageError("Missing argument 'CONFIG', or the option --template.")
        return config
    if config is not None:
        raise click.UsageError(f"'{config}' and --template {template} both describe the job: give one")
    if not prints and NEEDED not in changes:
        raise click.UsageError(
            f"template {template} needs --{NEEDED}: the program that its pods run, as their hosts see it"
        )
    return fill(template, changes)


def fill(template: str, changes: Mapping[str, Any]) -> str:
    """Return the text of a template with the values of the options. Raises UsageError."""
    text = (FOLDER / f"{template}.yaml").read_text()
    found = dict.fromkeys(match["option"] for line in text.splitlines() if (match := _LINE.match(line)))
    for option in changes:
        if option not in found:
            known = ", ".join(f"--{name}" for name in found)
            raise click.UsageError(f"template {template} has no --{option}; its options are {known}")

    def set_value(line: str) -> str:
        match = _LINE.match(line)
        if match is None or match["option"] not in changes:
            return line
        value = changes[match["option"]]
        shown = f"{value:g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
        if match["option"] == IMAGE:
            shown = match["value"].replace(IMAGE.upper(), shown)
        return f"{match['key'].replace('# ', '')}{shown}{match['mark']}"

    filled = "\n".join(map(set_value, text.splitlines())) + "\n"
    _check_counts(template, filled)
    return filled


def _check_counts(template: str, text: str) -> None:
    """Refuse a gang of one, and one that is larger than its job."""
    values = {match["key"].strip(): match for line in text.splitlines() if (match := _LINE.match(line))}
    count, least = (values[key] for key in ("instancecount:", "minimumrunninginstances:"))
    if int(least["value"]) < GANG_MIN:
        raise click.UsageError(f"--count {count['value']}: a gang of template {template} has {GANG_MIN} pods or more")
    if int(count["value"]) < int(least["value"]):
        raise click.UsageError(
            f"--count {count['value']} is below --min-count {least['value']}, the pods that start as a whole"
        )
