"""``peloton job create --template``: the files of the templates, their options, and refusals of bad ones."""

from __future__ import annotations

import re

import pytest

from cli.job.templates import FOLDER, OPTIONS, template_names
from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.yaml_config import load_message
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

TEMPLATES = template_names()
FIXED = ["jax", "mpi", "tensorflow"]
JOB = "91b1b8e5-2ba8-11e7-bc23-0242ac11000d"


def config_of(text: str) -> job_pb2.JobConfig:
    return load_message(text, job_pb2.JobConfig)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_a_job_file_that_print_writes_unchanged(name: str, run: Run) -> None:
    """Each is named after itself, asks for one rack and for a port by name, may be restarted, and has a program."""
    printed = run("job", "create", "--template", name, "--print")

    assert (0, (FOLDER / f"{name}.yaml").read_text()) == (printed.exit_code, printed.stdout)
    config = config_of(printed.stdout)
    assert name == config.name
    assert "rack" == config.placement.gangClose.label
    assert ["gang"] == [port.name for port in config.defaultConfig.ports]
    assert config.defaultConfig.restartPolicy.maxFailures > 0
    assert 2 <= config.sla.minimumRunningInstances <= config.instanceCount
    assert (FOLDER.parent / next(re.finditer(r"train_\w+\.py", printed.stdout)).group()).exists()


@pytest.mark.parametrize("name", TEMPLATES)
def test_each_option_sets_its_line(name: str, run: Run) -> None:
    """Values arrive in the message as they were given; comments stay."""
    program = "/srv/my train.py --note 'a: b' # --cpus"
    options = ["--count", "6", "--cpus", "1.5", "--memory", "700", "--gpus", "2", "--name", "tea: 2"]
    printed = run("job", "create", "--template", name, "--print", *options, "--program", program, "--python", "/v/py")

    config = config_of(printed.stdout)
    assert ("tea: 2", 6) == (config.name, config.instanceCount)
    resource = config.defaultConfig.resource
    assert (1.5, 700, 2) == (resource.cpuLimit, resource.memLimitMb, resource.gpuLimit)
    variables = {one.name: one.value for one in config.defaultConfig.command.environment.variables}
    assert (program, "/v/py") == (variables["PROGRAM"], variables["PYTHON"])
    assert (6 if name in FIXED else 2) == config.sla.minimumRunningInstances
    assert not config.defaultConfig.HasField("container")
    assert printed.stdout.count("#") == (FOLDER / f"{name}.yaml").read_text().count("#") + 1


@pytest.mark.parametrize("name", TEMPLATES)
def test_an_image_is_that_of_the_pods(name: str, run: Run) -> None:
    """Mesos runs it without a Docker engine, and Kubernetes as any other."""
    printed = run("job", "create", "--template", name, "--print", "--image", "registry/jax:1")

    container = config_of(printed.stdout).defaultConfig.container
    assert (mesos_pb2.ContainerInfo.MESOS, "registry/jax:1") == (container.type, container.mesos.image.docker.name)


def test_a_job_is_created_from_a_template(run: Run, api: FakeApi) -> None:
    """The request has the values of the options."""
    pool = respool_pb2.LookupResponse(id=peloton_pb2.ResourcePoolID(value="pool-1"))
    api.answers["respools.LookupResourcePoolID"] = [pool]
    api.answers["jobs.Create"] = [job_pb2.CreateResponse(jobId=peloton_pb2.JobID(value=JOB))]

    created = run("job", "create", "/ml", "--template", "jax", "--count", "5", "--program", "/srv/train.py")

    assert (0, f"Job {JOB} created\n") == (created.exit_code, created.stdout)
    sent = api.requests("jobs.Create")[0].config
    assert (5, 5, "pool-1") == (sent.instanceCount, sent.sla.minimumRunningInstances, sent.respoolID.value)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("/ml --template keras --program x", f"'keras' is not one of {', '.join(map(repr, TEMPLATES))}"),
        ("/ml --template jax", "template jax needs --program: the program that its pods run, as their hosts see it"),
        ("--template jax --program x", "Missing argument 'RESPOOL'"),
        ("/ml --template mpi --min-count 2 --program x", "template mpi has no --min-count; its options are --name, "),
        ("/ml --template jax --count 1 --program x", "--count 1: a gang of template jax has 2 pods or more"),
        ("/ml --template torchrun --min-count 1 --program x", "expected a whole number, 2 or more, got '1'"),
        (
            "/ml --template torchrun --min-count 3 --count 2 --program x",
            "--count 2 is below --min-count 3, the pods that start as a whole",
        ),
        ("/ml --template torchrun --min-count 9 --program x", "--count 3 is below --min-count 9"),
        ("/ml --count 2", "--count is an option of templates: give --template as well"),
        ("/ml --print", "--print is an option of templates: give --template as well"),
        ("/ml", "Missing argument 'CONFIG', or the option --template"),
        ("/ml --template jax --cpus -1 --program x", "'--cpus': -1.0 is not in the range"),
    ],
)
def test_bad_options_are_refused(arguments: str, error: str, run: Run) -> None:
    """The error names the template, the option and the rule; nothing is sent."""
    refused = run("job", "create", *arguments.split())

    assert refused.exit_code == 2
    assert error in refused.stderr


def test_a_file_and_a_template_are_refused(run: Run) -> None:
    """Two descriptions of one job may contradict each other."""
    refused = run("job", "create", "/ml", str(FOLDER / "jax.yaml"), "--template", "jax", "--program", "x")

    assert "both describe the job: give one" in refused.stderr


@pytest.mark.parametrize("option", OPTIONS)
def test_each_option_is_one_of_some_template(option: str) -> None:
    """An option that no file names would never apply."""
    assert any(f"# --{option}\n" in (FOLDER / f"{name}.yaml").read_text() for name in TEMPLATES)
