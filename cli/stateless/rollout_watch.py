"""The watch of a service's rollout: a bar on a terminal, lines elsewhere, JSON lines with ``--json``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cli.command import INTERRUPTED
from cli.errors import is_rpc_error
from cli.output import STATE_STYLES
from cli.settings import Settings
from cli.stateless.rollout import Rollout, UpdateFollower, bar_parts, of_goal
from cli.terminal import echo
from cli.times import clock_text
from cli.watching import Retrier, WatchPace, display_on, print_line, progress_console, redrawn
from cli.wire import v0, v1
from peloton.model.job import JobState

if TYPE_CHECKING:
    from rich.console import Console, Group

    from peloton.client import Client

View = Callable[["v1.job_svc.GetJobResponse"], Rollout]
REASON_INTERVAL_S = 2.0
REASON_TIMEOUT_S = 1.0  # a reason is not worth a longer wait
BAR_WIDTH = 40


def exit_after_update(settings: Settings, job_id: str, version: str = "") -> None:
    """End the process after the update: 0 SUCCEEDED, 1 otherwise, 130 interrupted."""
    exit_after_rollout(settings, job_id, UpdateFollower(version), "update")


def exit_after_goal(settings: Settings, job_id: str, goal: JobState) -> None:
    what = "start" if goal is JobState.RUNNING else "stop"
    exit_after_rollout(settings, job_id, lambda response: of_goal(response.job_info, goal), what)


def exit_after_rollout(settings: Settings, job_id: str, view: View, what: str) -> None:
    try:
        console = progress_console(settings.is_for_programs)
        rollout = watch_rollout(settings.client, job_id, view, console, is_json=settings.json)
    except KeyboardInterrupt:
        echo(f"Stopped watching; the {what} continues.", err=True)
        sys.exit(INTERRUPTED)
    sys.exit(rollout.exit_code)


def watch_rollout(
    client: Client, job_id: str, view: View, console: Console, is_json: bool = False, pace: WatchPace | None = None
) -> Rollout:
    """Watch until the end. Raises Failed when the job is unknown, or after too long an outage of the API."""
    pace = pace or WatchPace()
    retrier = Retrier(client, pace, f"job {job_id}", f"peloton job stateless watch {job_id}")
    reasons = Reasons(client, job_id, pace)
    began = pace.clock()

    def draw(rollout: Rollout) -> Group:
        return picture(rollout, pace.clock() - began, console.width)

    with display_on(
        console,
        is_json,
        json_of=lambda rollout: json.dumps(rollout.as_dict),
        lines_of=lambda rollout: {job_id: [rollout.line]},
        live=lambda: redrawn(console, draw),
    ) as display:
        while True:
            rollout = reasons.add_to(view(retrier.ask(display.say, lambda: read_job(client, job_id))))
            display.show(rollout)
            if rollout.exit_code is not None:
                break
            pace.sleep(pace.interval_s)
    if not is_json:
        for line in summary_lines(job_id, rollout, pace.clock() - began):
            print_line(console, line)
    return rollout


def read_job(client: Client, job_id: str) -> v1.job_svc.GetJobResponse:
    return client.services.GetJob(v1.job_svc.GetJobRequest(job_id=v1.peloton.JobID(value=job_id)))


def summary_lines(job_id: str, rollout: Rollout, seconds: float) -> list[str]:
    lines = [f"Job {job_id} {rollout.act} {rollout.state}: {rollout.counts_text}, after {seconds:.1f} s"]
    if rollout.exit_code or rollout.failed_count:
        lines.append(f"See: peloton job stateless list-pods {job_id}")
    return lines


@dataclass
class Reasons:
    """The reasons of waiting instances in flight, polled now and then; never again if the API lacks the call."""

    client: Client
    job_id: str
    pace: WatchPace
    text: str = ""
    asked_at: float | None = None
    has_answers: bool = True

    def add_to(self, rollout: Rollout) -> Rollout:
        if rollout.exit_code is not None or not rollout.current_count:
            return rollout
        now = self.pace.clock()
        if self.has_answers and (self.asked_at is None or now - self.asked_at >= REASON_INTERVAL_S):
            self.asked_at = now
            self.text = self.ask()
        return replace(rollout, waiting_for=f"{rollout.waiting_for} ({self.text})") if self.text else rollout

    def ask(self) -> str:
        request = v0.explain.JobWhyRequest(jobId=v0.peloton.JobID(value=self.job_id))
        try:
            answer = self.client.explain.JobWhy(request, timeout=REASON_TIMEOUT_S)
        except Exception as error:
            if not is_rpc_error(error):
                raise
            self.has_answers = error.code().name != "UNIMPLEMENTED"
            return ""
        reasons = [*(gangs.reason for gangs in answer.waiting), *answer.reasons]
        return " ".join(next((reason.text for reason in reasons if reason.text), "").split())


def picture(rollout: Rollout, seconds: float, console_width: int) -> Group:
    """Return instances that are done, failed and in flight as a bar, with the reason of waiting and all pods below."""
    from rich.console import Group
    from rich.text import Text

    width = max(10, min(BAR_WIDTH, console_width // 3))
    done, failed, current, rest = bar_parts(rollout, width)
    head = Text(f"{rollout.act} ")
    head.append(rollout.state, STATE_STYLES.get(rollout.state, "yellow"))
    head.append("  ")
    for count, style in ((done, "green"), (failed, "red"), (current, "yellow"), (rest, "dim")):
        head.append(("─" if style == "dim" else "━") * count, style)
    head.append(f"  {clock_text(seconds)}")
    lines = [Text(f"  {line}") for line in (rollout.counts_text, *rollout.pod_lines)]
    if rollout.waiting_for:
        lines.append(Text(f"  waits for {rollout.waiting_for}", "yellow"))
    if rollout.stall:
        lines.append(Text(f"  {rollout.stall_line}", "red"))
    return Group(head, *lines)
