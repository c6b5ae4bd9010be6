"""``peloton up``: a whole Peloton on this machine, in the foreground."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from cli.command import Command
from cli.terminal import echo
from peloton.model.ids import hostmgr_role

FIRST_CLUSTER = "local"
KUBERNETES_CLUSTER = "kubernetes"


class Rule(NamedTuple):
    """The options that ``option`` needs and excludes, by the names of their parameters, and the error."""

    option: str
    text: str
    needs: Sequence[str] = ()
    excludes: Sequence[str] = ()


OF_EMULATED_HOSTS = ("image_download_s", "enforce_disk_quota", "pass_env")
RULES = (
    Rule("simulate", "--hosts and --simulate exclude each other", excludes=["hosts_file"]),
    Rule("simulation_file", "--simulation needs --simulate N", needs=["simulate"]),
    Rule(
        "mesos",
        "--mesos has hosts of its own: leave out --hosts, --simulate, --image-download and --enforce-disk-quota",
        excludes=["hosts_file", "simulate", "image_download_s", "enforce_disk_quota"],
    ),
    Rule(
        "no_mesos",
        "--no-mesos needs --kubernetes, and excludes --mesos, --hosts, --simulate and --cluster: those are of Mesos",
        needs=["kubernetes"],
        excludes=["mesos", "hosts_file", "simulate", "more_clusters"],
    ),
    Rule("context", "--context needs --kubeconfig", needs=["kubeconfig"]),
    Rule(
        "kubeconfig",
        "--kubeconfig names the only cluster: leave out the options of emulated ones and of Mesos",
        excludes=["mesos", "hosts_file", "simulate", "more_clusters", "kubernetes", "no_mesos", *OF_EMULATED_HOSTS],
    ),
)


def check_mesos(context: click.Context, parameter: click.Parameter, value: str) -> str:
    host, _, port = value.rpartition(":")
    if value and not value.startswith("zk://") and not (host and "/" not in host and port.isdigit()):
        raise click.BadParameter(f"{value}: want HOST:PORT or zk://HOST:PORT,.../PATH")
    return value


def check_temporal(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if value and not value.rpartition(":")[2].isdigit():
        raise click.UsageError(f"--temporal {value}: want HOST:PORT")
    return value


def check_clusters(context: click.Context, parameter: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    if len({FIRST_CLUSTER, *names}) <= len(names):
        raise click.UsageError(f"each cluster needs a name of its own, and the first one is {FIRST_CLUSTER}")
    for name in names:
        try:
            hostmgr_role(name)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
    return names


@click.command(cls=Command)
@click.option(
    "--data",
    "data_dir",
    type=click.Path(file_okay=False, resolve_path=True, path_type=Path),
    help="Keep the state in this folder across runs.",
)
@click.option(
    "--hosts",
    "hosts_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML list of hosts: name, cpus, mem, disk, gpus, ports, attributes, revocable_cpus, extended.",
)
@click.option(
    "--simulate", type=click.IntRange(1, 100_000), metavar="N", help="Simulate N hosts; pods are not processes."
)
@click.option(
    "--simulation",
    "simulation_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML of run times, failures, images and classes of simulated hosts; needs --simulate.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=5397,
    show_default=True,
    help="Port of the API; 0: any free one.",
)
@click.option("--database", default="", help="SQLAlchemy URL instead of SQLite in the data folder.")
@click.option("--temporal", default="", metavar="HOST:PORT", callback=check_temporal,
              help="Use this Temporal server instead of starting one.")  # fmt: skip
@click.option(
    "--mesos",
    default="",
    metavar="HOST:PORT|zk://...",
    callback=check_mesos,
    help="Use this Mesos instead of emulated hosts.",
)
@click.option("--workers", type=click.IntRange(1, 16), default=1, show_default=True, help="The number of workers.")
@click.option(
    "--apis", type=click.IntRange(1, 16), default=1, show_default=True, help="The number of APIs, each on a port."
)
@click.option("--image-download", "image_download_s", type=click.FloatRange(0), default=0.0,
              help="Seconds that the download of an image takes.")  # fmt: skip
@click.option(
    "--sandbox-retention",
    "sandbox_retention_h",
    type=click.FloatRange(0),
    default=168.0,
    show_default=True,
    metavar="HOURS",
    help="How long the files of a run stay after its end.",
)
@click.option(
    "--pass-env", multiple=True, metavar="NAME", help="Give pods this variable of the environment. May be repeated."
)
@click.option("--enforce-disk-quota", is_flag=True, help="Fail a pod whose sandbox outgrows its disk limit.")
@click.option(
    "--cluster",
    "more_clusters",
    multiple=True,
    metavar="NAME",
    callback=check_clusters,
    help="Start one more emulated cluster; its hosts have the prefix NAME-. May be repeated.",
)
@click.option(
    "--kubernetes",
    is_flag=False,
    flag_value=0,
    type=click.IntRange(0, 100_000),
    metavar="[N]",
    help="Start an emulated Kubernetes as one more cluster, with three nodes, or with N simulated ones.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, resolve_path=True, path_type=Path),
    metavar="FILE",
    help="Manage the cluster of this kubeconfig (kind, k3d, minikube, any other) instead of emulated ones.",
)
@click.option("--context", default="", metavar="NAME", help="Context of the kubeconfig instead of its current one.")
@click.option("--no-mesos", is_flag=True, help="Start the emulated Kubernetes without an emulated Mesos.")
@click.option(
    "--secure", is_flag=True, help="Speak TLS, with certificates of an authority in the data folder; commands find it."
)
@click.option("--metrics", is_flag=True, help="Give each role a port with its metrics for Prometheus, and print them.")
@click.option("--no-web", is_flag=True, help="Serve no web pages.")
@click.option("--no-aurora", is_flag=True, help="Serve no Aurora API.")
def up(**options: Any) -> None:
    """Run the local cluster: Temporal, three emulated hosts and every role of Peloton, until Ctrl-C.

    \b
    Examples:
      peloton up
      peloton up --data ./data --hosts examples/hosts.yaml
      peloton up --simulate 1000
      peloton up --simulate 50 --simulation examples/simulation.yaml
      peloton up --cluster west --cluster east
      peloton up --workers 2 --apis 2
      peloton up --secure
      peloton up --kubernetes
      peloton up --kubernetes 1000 --no-mesos
      peloton up --data ./data --mesos mesos.example.com:5050
      peloton up --data ./data --kubeconfig ~/.kube/config --context kind-kind
    """
    refuse_conflicts(options)
    from services.lab.local.cluster import LocalSettings
    from services.lab.local.own_kubernetes import OwnKubernetes

    kubeconfig, context = options.pop("kubeconfig"), options.pop("context")
    own = OwnKubernetes(kubeconfig, context) if kubeconfig else None
    web, bridge, simulate = not options.pop("no_web"), not options.pop("no_aurora"), options.pop("simulate") or 0
    asyncio.run(_run(LocalSettings(web=web, bridge=bridge, simulate=simulate, own_kubernetes=own, **options)))


def refuse_conflicts(options: Mapping[str, Any]) -> None:
    """Raise click.UsageError for the first rule that the options break."""
    given = {name for name, value in options.items() if value or (name == "kubernetes" and value is not None)}
    for rule in RULES:
        if rule.option in given and (not given.issuperset(rule.needs) or not given.isdisjoint(rule.excludes)):
            raise click.UsageError(rule.text)
    if "kubernetes" in given and KUBERNETES_CLUSTER in options["more_clusters"]:
        raise click.UsageError(f"--kubernetes makes a cluster of the name {KUBERNETES_CLUSTER}: choose another one")


def report(part: str, line: str) -> None:
    with contextlib.suppress(OSError):  # the terminal is gone, or a pipe's reader: the work still runs to its end
        prefix = f"{time.strftime('%H:%M:%S')} {click.style(f'{part:<11}', fg='cyan')} "
        echo(_without_time(line), prefix=prefix)


def _without_time(line: str) -> str:
    """Cut the time that Peloton's roles put first, for this log has its own."""
    return line[9:] if line[2:3] == ":" and line[5:6] == ":" and line[8:9] == " " else line


async def _run(settings: object) -> None:
    from services.lab.local.cluster import LocalCluster, LocalSettings
    from services.lab.local.control import ControlServer

    assert isinstance(settings, LocalSettings)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
            loop.add_signal_handler(number, stop.set)
    os.umask(0o077)  # files of the cluster hold what users gave to their jobs
    cluster = LocalCluster(settings, report)
    report("up", f"starting in {cluster.data_dir}")
    try:
        starting = asyncio.create_task(cluster.start())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await starting
            return
        await starting
        async with ControlServer(cluster):
            temporal = f"Temporal Web UI {cluster.ui_url}" if cluster.ui_url else f"Temporal {cluster.temporal}"
            report("up", f"ready: API {cluster.addresses}, {temporal}")
            if cluster.web_url:
                report("up", f"pages: {cluster.web_url}/{cluster.web_port_note}")
            if cluster.bridge_url:
                report("up", f"Aurora's API: {cluster.bridge_url}")
            if cluster.tls is not None:
                report("up", f"certificate for browsers, without a password: {cluster.tls.browser_file}")
            if cluster.kubernetes is not None:
                config = shlex.quote(str(cluster.kubernetes.kubeconfig))
                report("up", f"Kubernetes: kubectl --kubeconfig {config} get pods --all-namespaces --watch")
            if own := settings.own_kubernetes:
                config = f"--kubeconfig {shlex.quote(str(own.kubeconfig))}" + (
                    f" --context {shlex.quote(own.context)}" if own.context else ""
                )
                report("up", f"Kubernetes: kubectl {config} get pods -A -l peloton.io/cluster={own.cluster} --watch")
            if ports := cluster.metrics_ports:
                shown = ", ".join(f"{name} {port}" for name, port in ports.items())
                report("up", f"metrics at {cluster.scheme}://127.0.0.1:PORT/metrics: {shown}")
            report("up", 'try in another terminal: peloton host query; "peloton local status"; Ctrl-C here stops all')
            await stop.wait()
    finally:
        report("up", "stopping")
        await cluster.stop()
        report("up", "stopped")
