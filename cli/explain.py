"""``why`` of jobs and pools: the reasons of waiting. ``plan``: the effects of a change, without making it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cli.command import Command
from cli.config_file import load_config
from cli.errors import Failed
from cli.kubectl import Kubectl, is_there
from cli.names import JobType, UnknownJob
from cli.output import print_outcome
from cli.params import CONFIG_FILE, POOL_PATH
from cli.pools import pool_id_at
from cli.settings import Settings, pass_settings
from cli.why import OBJECT, ask, explain
from cli.wire import v0, v1


class JobOrObject(JobType):
    """The type of an argument that names a job, or an object of Kubernetes as NAMESPACE/NAME, which is left as it
    is."""

    def resolve(self, settings: Settings, value: Any) -> Any:
        try:
            return super().resolve(settings, value)
        except UnknownJob:
            if OBJECT.fullmatch(value) and is_there():
                return value
            raise


@click.command("why", cls=Command)
@click.argument("job_id", metavar="JOB", type=JobOrObject())
@pass_settings
def why_job(settings: Settings, job_id: str) -> None:
    """Explain why instances of a job do not run: their place in the queue, the rule that keeps them waiting, with its
    numbers, and which jobs hold the resources that they wait for. For a job that has ended: how it ended.

    NAMESPACE/NAME is a pod or its owner in Kubernetes, as kubectl finds it; `peloton why` has options for it.

    \b
    Examples:
      peloton job why JOB
      peloton job why maps/train-0
      peloton --json job why JOB | jq '.waiting[].reason.rule'
    """
    response = explain(settings, job_id, Kubectl()) if OBJECT.fullmatch(job_id) else ask(settings, job_id)
    print_outcome(settings, response, response.text)


@click.command("why", cls=Command)
@click.argument("path", metavar="POOL", type=POOL_PATH)
@pass_settings
def why_pool(settings: Settings, path: str) -> None:
    """Explain what the first gang of each queue of POOL waits for, and which pools borrow from it or lend to it.

    \b
    Example:
      peloton respool why /tutorial
    """
    request = v0.explain.PoolWhyRequest(path=v0.respool.ResourcePoolPath(value=path))
    response = settings.client.explain.PoolWhy(request)
    print_outcome(settings, response, response.text)


@click.command("plan", cls=Command)
@click.argument("respool", type=POOL_PATH)
@click.argument("config", type=CONFIG_FILE)
@pass_settings
def plan_job(settings: Settings, respool: str, config: Path) -> None:
    """Show how the job of the YAML file CONFIG would be scheduled in the pool RESPOOL: how many of its instances would
    be admitted now, how many of these fit on hosts now and which rules keep the others off which hosts, what the queued
    instances would wait for, which instances fit on no host even if it were empty, and which pods would be evicted for
    them after how many rounds of preemption. Nothing is created.

    \b
    Example:
      peloton job plan /tutorial examples/tutorial/hello.yaml
    """
    print_plan(settings, load_config(config, v0.job.JobConfig), respool)


def print_plan(settings: Settings, config: v0.job.JobConfig, respool: str) -> None:
    config.respoolID.value = pool_id_at(settings.client, respool)
    response = settings.client.explain.JobPlan(v0.explain.JobPlanRequest(config=config))
    print_outcome(settings, response, response.text)


@click.command("plan", cls=Command)
@click.argument("respool", type=POOL_PATH)
@click.argument("spec", type=CONFIG_FILE)
@pass_settings
def plan_service(settings: Settings, respool: str, spec: Path) -> None:
    """Show how the service of the YAML file SPEC would be scheduled in the pool RESPOOL, if all of its instances were
    added at once, as `peloton job plan` does for a job. Nothing is created.

    \b
    Example:
      peloton job stateless plan /tutorial examples/services/web.yaml
    """
    job_spec = load_config(spec, v1.job.JobSpec)
    job_spec.respool_id.value = pool_id_at(settings.client, respool)
    response = settings.client.explain.JobPlan(v0.explain.JobPlanRequest(spec=job_spec))
    print_outcome(settings, response, response.text)


@click.command("plan", cls=Command)
@click.argument("config", type=CONFIG_FILE)
@click.option("--parent", metavar="POOL", type=POOL_PATH, default="/", show_default=True,
              help="The parent of the pool.")  # fmt: skip
@pass_settings
def plan_pool(settings: Settings, config: Path, parent: str) -> None:
    """Show what creating or changing the pool of the YAML file CONFIG would do: which entitlements would change,
    which pools would then hold more than theirs, which waiting gangs would be admitted now, and which pods would be
    evicted. Nothing is changed.

    \b
    Examples:
      peloton respool plan examples/tutorial/pool.yaml
      peloton respool plan examples/maps.yaml --parent /tutorial
    """
    pool_config = load_config(config, v0.respool.ResourcePoolConfig)
    if pool_config.HasField("parent"):
        raise Failed("parent should not be supplied in the config")
    pool_config.parent.value = pool_id_at(settings.client, parent, what="parent")
    response = settings.client.explain.PoolPlan(v0.explain.PoolPlanRequest(config=pool_config))
    print_outcome(settings, response, response.text)
