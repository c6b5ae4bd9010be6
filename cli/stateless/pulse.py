"""``peloton job stateless pulse``: lets a pulsed update continue."""

from __future__ import annotations

import sys
from functools import partial

import click

from cli.command import INTERRUPTED, Command
from cli.names import job_argument
from cli.output import print_outcome
from cli.params import DURATION
from cli.settings import Settings, pass_settings
from cli.stateless.rollout import update_state
from cli.stateless.service import Service
from cli.terminal import echo
from cli.watching import Retrier, WatchPace
from cli.wire import v1
from peloton.model.update import UPDATE_TERMINAL, UpdateState


@click.command(cls=Command)
@job_argument
@click.option("--update-key", default="", metavar="TEXT", help="Refuse it unless the update has this name.")
@click.option("--every", type=DURATION, metavar="DURATION", help="Repeat the pulse until the update has ended.")
@pass_settings
def pulse(settings: Settings, job_id: str, update_key: str, every: float | None) -> None:
    """Let the pulsed update of a service continue, for the seconds that it was created with.

    With --every the update continues for as long as this command runs; the exit code is 0 if it succeeded, 1 otherwise.

    \b
    Examples:
      peloton job stateless replace JOB examples/services/web.yaml 1 --pulse-seconds 30
      peloton job stateless pulse JOB
      peloton job stateless pulse JOB --every 10s
    """
    request = v1.job_svc.PulseJobWorkflowRequest(job_id=Service(settings, job_id).id, update_key=update_key)
    if every is None:
        response = settings.client.services.PulseJobWorkflow(request)
        print_outcome(settings, response, text_of(response.status))
        return
    try:
        state = pulse_until_the_end(settings, request, every)
    except KeyboardInterrupt:
        echo("No more pulses: the update begins nothing more when the last one has run out.", err=True)
        sys.exit(INTERRUPTED)
    sys.exit(0 if state is UpdateState.SUCCEEDED else 1)


def pulse_until_the_end(settings: Settings, request: v1.job_svc.PulseJobWorkflowRequest, every_s: float) -> UpdateState:
    """Pulse until the update ends. Raises Failed when the API stays unavailable."""
    job_id = request.job_id.value
    pace = WatchPace(interval_s=every_s)
    retrier = Retrier(settings.client, pace, f"update of job {job_id}", f"peloton job stateless watch {job_id}")
    shown = ""
    while True:
        response = retrier.ask(partial(echo, err=True), lambda: settings.client.services.PulseJobWorkflow(request))
        text, state = text_of(response.status), update_state(response.status)
        if text != shown:
            print_outcome(settings, response, text, lines=True)
            shown = text
        if state in UPDATE_TERMINAL:
            return state
        pace.sleep(every_s)


def text_of(status: v1.job.WorkflowStatus) -> str:
    done, failed = status.num_instances_completed, status.num_instances_failed
    counts = f"{done}/{done + failed + status.num_instances_remaining} done"
    return f"Update {update_state(status)}: {counts}{f', {failed} failed' if failed else ''}"
