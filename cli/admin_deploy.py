"""``peloton admin deploy``: run a control plane as services of this Peloton."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from cli.command import Command
from cli.errors import Failed
from cli.output import Table, print_rows_for_programs, print_table
from cli.params import CONFIG_FILE
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from peloton.deployment.description import Deployment, parse
from peloton.deployment.parts import api_address, client_settings, parts_of, port_setting
from peloton.deployment.plan import Action, Step, changes, plan, plan_deletion
from peloton.errors import InvalidArgument

VIRTUAL = "virtual"
"""The name of a virtual cluster that no file describes, and of its pool."""
WAIT_S = 900.0
TABLE: Table[Step] = Table(
    ("Action", lambda step: step.action),
    ("Part", lambda step: step.name),
    ("Why", lambda step: "; ".join(step.reasons) or "--"),
    whole=["Action", "Part"],
)


@click.command(cls=Command)
@click.argument("file", required=False, type=CONFIG_FILE)
@click.option(
    "--simulate", type=click.IntRange(1, 100_000), metavar="N",
    help="A virtual cluster: N simulated hosts. Without FILE it is a trial on one machine.",
)  # fmt: skip
@click.option("--name", metavar="NAME", default="", help="The name, instead of that of the file.")
@click.option("--command", metavar="PATH", default="", help="The program peloton, instead of that of the file.")
@click.option("--plan", "only_plan", is_flag=True, help="Show what would change, and why.")
@click.option("--delete", "is_deletion", is_flag=True, help="Delete all of its services; the database stays.")
@click.option("--roll-back", "backwards", is_flag=True, help="Update in the order of a return to an older release.")
@click.option("--wait", "wait_s", type=click.FloatRange(1), default=WAIT_S, show_default=True, metavar="SECONDS",
              help="Timeout of each step.")  # fmt: skip
@pass_settings
def deploy(
    settings: Settings, /, file: Path | None, only_plan: bool, is_deletion: bool, backwards: bool, wait_s: float,
    **changed: Any,
) -> None:  # fmt: skip
    """Run the control plane of another Peloton as services of this one, as FILE describes it.

    It creates missing services, updates those that differ one pod at a time, in the order of an upgrade, and waits for
    each before it begins the next one; an update that fails is rolled back, and ends the command. It may be repeated at
    any time, and continues. docs/frameworks/clusters.md has the keys of FILE.

    \b
    Examples:
      peloton admin deploy --simulate 1000
      peloton admin deploy examples/peloton-on-peloton/west.yaml --plan
      peloton admin deploy examples/peloton-on-peloton/west.yaml --command /opt/peloton-0.3/bin/peloton
      peloton admin deploy examples/peloton-on-peloton/west.yaml --delete
    """
    from cli.deployed import Deployed

    deployment = read(file, changed)
    deployed = Deployed(settings, deployment.name, deployment.pool)
    observed = deployed.observe()
    wanted = parts_of(deployment)
    steps = plan_deletion(observed) if is_deletion else plan(wanted, observed, backwards)
    if only_plan:
        show(settings, steps)
        return
    if not is_deletion and deployed.make_pool(wanted):
        echo(f"created pool {deployment.pool}")
    parts = {part.name: part for part in wanted}
    for step in changes(steps):
        echo(f"{step.action} {step.name}{': ' if step.reasons else ''}{'; '.join(step.reasons)}")
        if step.action is Action.DELETE:
            deployed.delete(step.name)
            deployed.wait_until_gone(step.name, wait_s)
            continue
        if step.action is Action.CREATE:
            deployed.create(parts[step.name])
        elif step.action is Action.UPDATE:
            deployed.update(parts[step.name])
        deployed.wait(step.name, wait_s, is_new=step.action is not Action.WAIT)
    if is_deletion:
        echo(f"{deployment.name} is deleted")
        return
    for line in addresses(deployment, [] if api_address(deployment) else deployed.places("api")):
        echo(line)


def read(file: Path | None, changed: dict[str, Any]) -> Deployment:
    """Return the deployment of a file and options. Raises Failed and InvalidArgument."""
    given: dict[str, object] = load(file) if file else {}
    if file is None:
        if not (changed["simulate"] or changed["name"]):
            raise Failed("what to deploy? name a FILE, or --simulate N for a virtual cluster")
        name = changed["name"] or VIRTUAL
        given = {"name": name, "pool": f"/{name}", "data": str(state_folder() / name), "roles": {"web": {}}}
        given["simulate"] = changed["simulate"] or 1
    given |= {key: value for key, value in changed.items() if value}
    try:
        return parse(given, str(Path(sys.executable).parent / "peloton"))
    except InvalidArgument as error:
        raise Failed(f"{file}: {error.message}" if file else error.message) from None


def state_folder() -> Path:
    return Path.home() / ".local" / "state" / "peloton"


def load(file: Path) -> dict[str, object]:
    import yaml

    from peloton.files import read_file

    content = read_file(file, "deployment")
    try:
        found = yaml.safe_load(content)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Failed(f"{file}: {error}") from None
    if not isinstance(found, dict):
        raise Failed(f"{file} is no deployment: want keys and values")
    return {str(key): value for key, value in found.items()}


def show(settings: Settings, steps: Sequence[Step]) -> None:
    rows = [{"action": str(step.action), "part": step.name, "reasons": list(step.reasons)} for step in steps]
    if not print_rows_for_programs(settings, rows, [step.name for step in steps]):
        print_table(TABLE, steps, settings.output == "wide")


def addresses(deployment: Deployment, places: Iterable[str]) -> list[str]:
    """Return lines that say where the deployed Peloton is reached."""
    found = api_address(deployment) or ",".join(places) or "no address yet"
    lines = [f"{deployment.name} is up: peloton --address {found} host query"]
    if deployment.is_trial and deployment.sizes["web"].instances:
        host = client_settings(deployment)["PELOTON_API"].partition(":")[0]
        lines.append(f"pages: http://{host}:{port_setting(deployment, 'web')['PELOTON_WEB_PORT']}/")
    return lines
