"""``peloton admin worker``: lists versions of the workers, promotes one, rolls back."""

from __future__ import annotations

from collections.abc import Iterable

import click

from cli.command import Group
from cli.output import Table, print_for_programs, print_list, print_table
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from cli.times import seconds_text
from cli.wire import v0

PERCENT_MAX = 99
TABLE: Table[v0.workers.WorkerVersion] = Table(
    ("Version", lambda one: one.version),
    ("State", lambda one: one.state),
    ("Share", lambda one: f"{one.percent:g} %"),
    ("Workers", lambda one: one.worker_count),
    ("Since", lambda one: seconds_text(one.since_time)),
    ("Done", lambda one: one.workflow_tasks_done + one.activities_done),
    ("Failed", lambda one: one.workflow_tasks_failed + one.activities_failed),
    ("Crashes", lambda one: one.crash_count),
    ("Reason", lambda one: one.reason or "--"),
    whole=["Version", "State", "Share", "Workers"],
    spare=["Crashes", "Since", "Failed", "Done"],
    nothing="Temporal knows no version of the workers: none with a version has polled it yet",
    name=lambda one: one.version,
)


@click.group(cls=Group)
def worker() -> None:
    """Show the versions of the workers, promote one, or roll back.

    A new version runs 5 % of the workflows, then 25 %, then all; each step requires tasks that did not fail. A version
    whose workers crash, or whose workflow tasks fail, is GIVEN_UP and runs no workflows until it is promoted.
    """


@worker.command()
@pass_settings
def ls(settings: Settings) -> None:
    """List the versions, the newest first: what they run, what they did, and what they wait for.

    Done and Failed are workflow tasks and activities since the start of the workers that are up. Activities may fail
    by no fault of the version, when the service that they call is unavailable. Crashes are workers that vanished within
    an hour of their start.

    \b
    Example:
      peloton admin worker ls
    """
    answer = settings.client.worker_versions.QueryWorkerVersions(v0.workers.QueryWorkerVersionsRequest())
    print_list(settings, answer, TABLE, answer.versions)


@worker.command()
@click.argument("version")
@click.option(
    "--percent",
    type=click.IntRange(1, PERCENT_MAX),
    help="The share of workflows, instead of all. Automatic promotion continues from there.",
)
@pass_settings
def promote(settings: Settings, version: str, percent: int | None) -> None:
    """Have VERSION run all workflows, or a part of them, without further proof; also a version that is GIVEN_UP.

    Workflows come to it when they wake. Newer versions with workers become GIVEN_UP.

    \b
    Examples:
      peloton admin worker promote 0.2.0-1f6d2c70a9be
      peloton admin worker promote 0.2.0-1f6d2c70a9be --percent 10
    """
    request = v0.workers.PromoteWorkerVersionRequest(version=version, percent=percent or 0)
    show(settings, settings.client.worker_versions.PromoteWorkerVersion(request))


@worker.command()
@pass_settings
def rollback(settings: Settings) -> None:
    """Roll back the version that is ramping, or, if none is, the current version to the one before, which must have
    workers. A version that was rolled back does not ramp again until it is promoted.

    \b
    Example:
      peloton admin worker rollback
    """
    request = v0.workers.RollBackWorkerVersionRequest()
    show(settings, settings.client.worker_versions.RollBackWorkerVersion(request))


def show(
    settings: Settings, answer: v0.workers.PromoteWorkerVersionResponse | v0.workers.RollBackWorkerVersionResponse
) -> None:
    if not print_for_programs(settings, answer, (one.version for one in answer.versions)):
        for line in routes(answer.versions):
            echo(line)
        print_table(TABLE, answer.versions, settings.output == "wide")


def routes(versions: Iterable[v0.workers.WorkerVersion]) -> list[str]:
    """Return a line for each version that runs workflows."""
    return [f"Version {one.version} runs {one.percent:g} % of the workflows" for one in versions if one.percent]
