"""``peloton job stateless create``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from cli.command import Command
from cli.config_file import load_config
from cli.errors import Failed, is_rpc_error
from cli.new_job import (
    FileSecret,
    job_id_option,
    report_unknown_outcome,
    secret_options,
    secrets_of,
    warn_if_unplaceable,
)
from cli.output import print_outcome
from cli.pools import pool_id_at
from cli.settings import Settings, pass_settings
from cli.stateless.options import (
    CreateWords,
    create_words,
    failure_options,
    key_option,
    opaque_option,
    watch_option,
    words_argument,
)
from cli.stateless.rollout_watch import exit_after_update
from cli.stateless.service import opaque_data
from cli.wire import v1


@click.command(cls=Command)
@words_argument("[RESPOOL] SPEC [BATCH-SIZE]", create_words, required=True)
@job_id_option
@secret_options
@failure_options
@key_option
@opaque_option
@watch_option
@pass_settings
def create(
    settings: Settings,
    /,
    words: CreateWords,
    job_id: str,
    secrets: Sequence[FileSecret],
    update_key: str,
    opaque: str | None,
    watch: bool,
    **create_spec: Any,
) -> None:
    """Create a service from the YAML file SPEC.

    The service goes into the pool RESPOOL; without it, into the pool that the file names as `respoolid`. Its instances
    are added BATCH-SIZE at a time; all at once if that is 0 or absent.

    \b
    Examples:
      peloton job stateless create /tutorial examples/services/web.yaml 1 --watch
      peloton job stateless create /tutorial examples/services/web.yaml
    """
    spec = load_config(words.spec, v1.job.JobSpec)
    if words.pool:
        spec.respool_id.value = pool_id_at(settings.client, words.pool)
    elif not spec.respool_id.value:
        raise Failed(f"{words.spec} names no resource pool: write respoolid there, or the pool's path before the file")
    request = v1.job_svc.CreateJobRequest(
        job_id=v1.peloton.JobID(value=job_id),
        spec=spec,
        secrets=secrets_of(secrets, v1.peloton.Secret),
        create_spec=v1.job.CreateSpec(batch_size=words.batch_size, **create_spec),
        opaque_data=opaque_data(opaque),
        update_key=update_key,
    )
    with report_unknown_outcome(job_id, "peloton job stateless"):
        response = send(settings, request)
    created_id, version = response.job_id.value, response.version.value
    text = f"Job {created_id} created. Entity Version: {version}"
    print_outcome(settings, response, text, [created_id], lines=watch)
    warn_if_unplaceable(settings, created_id)
    if watch:
        exit_after_update(settings, created_id, version)


def send(settings: Settings, request: v1.job_svc.CreateJobRequest) -> v1.job_svc.CreateJobResponse:
    try:
        return settings.client.services.CreateJob(request)
    except Exception as error:
        if not is_rpc_error(error):
            raise
        code, details = error.code().name, error.details()
        if code == "ALREADY_EXISTS":
            raise Failed(f"Job {request.job_id.value} already exists: {details}") from error
        if code == "INVALID_ARGUMENT":
            raise Failed(f"Invalid job spec: {details}") from error
        raise
