"""``peloton admin doctor``: check the control plane, and say what to do."""

from __future__ import annotations

import time
from typing import Any

import click

from cli.command import Command
from cli.errors import Failed
from cli.output import Table, print_rows_for_programs, print_table
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from cli.wire import v0
from peloton.model.diagnosis import CheckResult

DEADLINE_S = 20.0
SKEW_WARN_S = 2.0
"""Difference of the clocks of this machine and the api from which it is worth a warning: times are shown by both."""
Row = dict[str, Any]
RESULTS = {result.value: result.name.lower() for result in CheckResult}
TABLE: Table[Row] = Table(
    ("Result", lambda one: one["result"]),
    ("Check", lambda one: one["name"]),
    ("Found", lambda one: one["text"]),
    ("What to do", lambda one: one["advice"]),
    whole=["Result", "Check"],
)


@click.command("doctor", cls=Command)
@pass_settings
def doctor(settings: Settings) -> None:
    """Check the control plane: clocks, leases, roles, versions and settings of the processes, the database with its
    schema and disk, Temporal, workers, stuck workflows, the backlog, the certificate of the api, and the rules between
    rows.

    Each check is ok, warn or fail, with what to do. The api checks, so it needs one that answers; every check has a
    deadline, so it never hangs. The exit code is 1 when a check fails.

    \b
    Examples:
      peloton admin doctor
      peloton admin doctor --json | jq '.[] | select(.result != "ok")'
    """
    rows = examine(settings)
    if not print_rows_for_programs(settings, rows, [one["name"] for one in rows]):
        print_table(TABLE, rows, settings.output == "wide")
        echo()
        counts = {name: sum(one["result"] == name for one in rows) for name in RESULTS.values()}
        echo(", ".join(f"{count} {name}" for name, count in counts.items()))
    if failed := [one["name"] for one in rows if one["result"] == "fail"]:
        raise Failed(f"{len(failed)} checks fail: {', '.join(failed)}")


def examine(settings: Settings) -> list[Row]:
    import grpc

    began_s, mono_s = time.time(), time.monotonic()
    try:
        answer = settings.client.overview.GetDiagnosis(v0.overview.GetDiagnosisRequest(), timeout=DEADLINE_S)
    except grpc.RpcError as error:
        why = error.details() if isinstance(error, grpc.Call) else str(error)
        advice = "start an api, or name one that runs by --address; its log says why it does not answer"
        return [_row("api", CheckResult.FAIL, str(why), advice)]
    took_s = time.monotonic() - mono_s
    ahead_s = answer.time - (began_s + took_s)
    is_off = abs(ahead_s) > SKEW_WARN_S + took_s
    clock = _row(
        "clock of the api",
        CheckResult.WARN if is_off else CheckResult.OK,
        f"{abs(ahead_s):.1f} s {'ahead of' if ahead_s >= 0 else 'behind'} this machine",
        "synchronize the clocks of both machines by NTP" if is_off else "",
    )
    api = _row("api", CheckResult.OK, f"answers within {took_s:.1f} s, all checks included", "")
    return [api, clock, *(_row(one.name, one.result, one.text, one.advice) for one in answer.checks)]


def _row(name: str, result: int, text: str, advice: str) -> Row:
    return {"result": RESULTS.get(result, "fail"), "name": name, "text": text, "advice": advice}
