"""The local cluster: Temporal, an emulated Mesos cluster and Peloton's roles, each a process of its own."""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO

import grpc

from peloton.errors import InvalidArgument, Unavailable
from peloton.extras import require_extra, require_pymesos
from services.lab.local import data_files, kubernetes
from services.lab.local.kubernetes import LocalKubernetes
from services.lab.local.own_kubernetes import OwnKubernetes
from services.lab.local.part import Part
from services.lab.local.ports import POD_PORTS, PortReservations
from services.lab.local.roles import BRIDGE, ROLES, WEB, is_role, role_of, several
from services.lab.local.secure import POD_VARIABLES, LocalTls, announce, channels_to_api
from services.lab.local.temporal_server import (
    answers,
    is_passing_error,
    is_reachable,
    own_threads,
    server_command,
    starts_workflows,
    without_client_configuration,
)
from services.settings import list_given, load

TEMPORAL = "temporal"
READY_TIMEOUT_S = 120.0
TEMPORAL_UI_PORT = 8233
WEB_PORT = 5398
BRIDGE_PORT = 5396
AGENT_TIMEOUT_S = 5.0
PREFETCH_URL = "PELOTON_PREFETCH_URL"
HEALTH_FILE = "PELOTON_HEALTH_FILE"
PODS_API = "PELOTON_PODS_API"
METRICS_PORT, SDK_METRICS_PORT = "PELOTON_METRICS_PORT", "PELOTON_TEMPORAL_METRICS_PORT"

REREGISTER = "PELOTON_AGENT_REREGISTER_TIMEOUT_S"
QUICKER = {
    "PELOTON_LEADER_TTL_S": "3",
    "PELOTON_PREEMPTION_PERIOD_S": "1",
    "PELOTON_PREEMPTION_ROUNDS": "3",
    "PELOTON_AGENTS_PERIOD_S": "2",
    REREGISTER: "20",
    "PELOTON_QOS_PERIOD_S": "2",
    "PELOTON_QOS_CLOSED_S": "10",
}
"""Defaults for a cluster that a person watches."""


REFUSALS = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
HOST_PREFIX = "peloton-mesos-"
"""The prefix of hosts that are neither simulated nor in a file."""
NO_LATENCIES = {"PELOTON_LATENCY_PORT": "0"}  # for host managers but the first one, which has the port
SIMULATE_VARIABLES = "PELOTON_SIMULATE"
"""The prefix of variables: the emulated cluster reads PELOTON_SIMULATE_SECONDS and PELOTON_SIMULATE_SHARE of a pod."""


def prefetch_url(master: str) -> str:
    return f"http://{master}/minicluster/images"


def own_defaults(given: Collection[str], has_real_mesos: bool = False) -> dict[str, str]:
    """Return defaults of the variables that are not ``given``.

    Agents of a real Mesos have as long to come back to a new master as in any other deployment: without ZooKeeper they
    find it after 75 s.
    """
    left_out = {*given, *([REREGISTER] if has_real_mesos else ())}
    return {name: value for name, value in QUICKER.items() if name not in left_out}


@dataclass(frozen=True)
class LocalSettings:
    port: int = 5397  # of the API; 0 picks a free one
    data_dir: Path | None = None  # None: a temporary one, removed at the end
    hosts_file: Path | None = None
    simulate: int = 0
    database: str = ""  # empty: SQLite in data_dir
    mesos: str = ""  # host:port of a Mesos master to use instead of the emulated one
    temporal: str = ""  # host:port of a Temporal server to use instead of one of its own
    temporal_config: tuple[str, ...] = ()  # dynamic configuration of its own Temporal, KEY=VALUE
    slack_interval_s: float = 5.0  # between estimates of the emulated hosts' slack; 0: none
    image_download_s: float = 0.0  # seconds until an image is on an emulated host
    enforce_disk_quota: bool = False  # on emulated hosts
    sandbox_retention_h: float = 168.0  # hours for sandboxes of ended runs there
    pass_env: tuple[str, ...] = ()  # variables that pods on emulated hosts inherit from this environment
    more_clusters: tuple[str, ...] = ()  # emulated too; each has a host manager, and hosts with its prefix
    environment: dict[str, str] = field(default_factory=dict)
    simulation_file: Path | None = None  # run times, failures and downloads on simulated hosts
    workers: int = 1
    apis: int = 1
    kubernetes: int | None = None  # simulated nodes; 0: three with processes; None: no Kubernetes
    no_mesos: bool = False  # the emulated Kubernetes alone
    own_kubernetes: OwnKubernetes | None = None  # a cluster of the user instead of all emulated ones
    web: bool = False  # whether it serves web pages
    bridge: bool = False  # whether it serves Aurora's API
    secure: bool = False  # whether roles and clients speak TLS, with certificates of an authority of its own
    metrics: bool = False  # whether each role has a port that Prometheus scrapes


class LocalCluster:
    """A local cluster. ``async with LocalCluster(...)``: ready when entered, gone when left."""

    def __init__(self, settings: LocalSettings, report: Callable[[str, str], None]) -> None:
        self.settings = settings
        self.report = report
        self.is_temporary = settings.data_dir is None
        self.data_dir = settings.data_dir or Path(tempfile.mkdtemp(prefix="peloton-"))
        self._taken = PortReservations()
        self._has_port = not settings.port or self._taken.take(settings.port)
        own_ports = 7 + len(settings.more_clusters)
        port, temporal_port, ui_port, web_port, bridge_port, mesos_port, kubernetes_port, *more_ports = (
            self._taken.take_any(own_ports + settings.apis - 1)
        )
        self.port = settings.port or port
        self.api_ports = [self.port, *more_ports[len(settings.more_clusters) :]]
        # Pages, the bridge and the Web UI have their usual ports when the API has a fixed one; clusters on free ports
        # leave them.
        self.ui_port = TEMPORAL_UI_PORT if settings.port and self._taken.take(TEMPORAL_UI_PORT) else ui_port
        self.web_port = WEB_PORT if settings.port and settings.web and self._taken.take(WEB_PORT) else web_port
        usual = settings.port and settings.bridge and self._taken.take(BRIDGE_PORT)
        self.bridge_port = BRIDGE_PORT if usual else bridge_port
        self.temporal = settings.temporal or f"127.0.0.1:{temporal_port}"
        self.mesos = settings.mesos or f"127.0.0.1:{mesos_port}"
        more = zip(settings.more_clusters, more_ports, strict=False)  # the rest are ports of apis
        self.more_masters = {name: f"127.0.0.1:{port}" for name, port in more}
        self.kubernetes: LocalKubernetes | None = None
        if settings.kubernetes is not None:
            folder = (self.data_dir / kubernetes.CLUSTER).resolve()
            self.kubernetes = LocalKubernetes(folder, kubernetes_port, settings.kubernetes)
        self.tls: LocalTls | None = None
        self.token = secrets.token_hex(16)  # for `peloton local`
        self.parts: dict[str, Part] = {}
        self.metrics_ports: dict[str, int] = {}  # by part
        self._hosts_expected = 0
        self._pod_ports = POD_PORTS[0]
        self._lock: IO[str] | None = None
        self._sandbox_cleaner: asyncio.Task[None] | None = None

    @property
    def has_own_mesos(self) -> bool:
        """Return whether its first cluster is an emulated Mesos."""
        return not self.settings.mesos and not self._has_no_mesos

    @property
    def _has_no_mesos(self) -> bool:
        return self.settings.no_mesos or self.settings.own_kubernetes is not None

    @property
    def _has_processes(self) -> bool:
        """Return whether pods of some emulated cluster are processes, and need ports."""
        has_mesos = self.has_own_mesos or bool(self.more_masters)
        return (has_mesos and not self.settings.simulate) or self.settings.kubernetes == 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def addresses(self) -> str:
        """Return the addresses of all apis, as clients take them."""
        return ",".join(f"127.0.0.1:{port}" for port in self.api_ports)

    @property
    def ui_url(self) -> str:
        """Return the URL of Temporal's Web UI; empty when the server is the user's."""
        return "" if self.settings.temporal else f"http://127.0.0.1:{self.ui_port}"

    @property
    def scheme(self) -> str:
        return "https" if self.settings.secure else "http"

    @property
    def web_url(self) -> str:
        """Return the URL of the web pages; empty when there are none."""
        return f"{self.scheme}://127.0.0.1:{self.web_port}" if self.settings.web else ""

    @property
    def bridge_url(self) -> str:
        """Return the URL of Aurora's API; empty when it is not served."""
        return f"{self.scheme}://127.0.0.1:{self.bridge_port}/api" if self.settings.bridge else ""

    @property
    def web_port_note(self) -> str:
        """Return why the web pages are not at their usual port, in brackets, or "": they are, or none was fixed."""
        if not self.settings.port or self.web_port == WEB_PORT:
            return ""
        return f" (port {WEB_PORT} is in use: another process listens there, or another local cluster has taken it)"

    @property
    def database(self) -> str:
        return self.settings.database or f"sqlite:///{self.data_dir / 'peloton.db'}"

    async def __aenter__(self) -> LocalCluster:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start everything and wait until a job could run. Raises Unavailable naming what is missing, and
        InvalidSettings for variables that the roles would refuse.
        """
        loaded = load({**os.environ, **self.settings.environment})
        if not self._has_port:
            raise Unavailable(f"port {self.port} is taken: is another `peloton up` running? choose one with --port")
        if self.settings.web:
            require_extra("local", "starlette", "the role web of a local cluster")
        if not self._has_no_mesos or self.more_masters:
            require_pymesos("a local cluster with Mesos")
        if self.settings.bridge:
            require_extra("local", "thriftpy2", "the role aurorabridge of a local cluster")
        if self.settings.temporal and not await is_reachable(
            self.temporal, {**os.environ, **self.settings.environment}
        ):
            raise Unavailable(f"no Temporal server answers at {self.temporal}: start it, or leave out --temporal")
        if self.settings.mesos and "://" not in self.mesos and not await asyncio.to_thread(answers, self.mesos):
            raise Unavailable(f"no Mesos master answers at {self.mesos}: start it, or leave out --mesos")
        if own := self.settings.own_kubernetes:
            report = partial(self.report, kubernetes.CLUSTER)
            await asyncio.to_thread(own.check, own.settings(loaded), report)
        if self._has_processes:
            self._pod_ports = self._taken.pod_ports()
        self._hosts_expected = self._host_count()  # refuse a bad file before anything starts
        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.data_dir / "logs").mkdir(mode=0o700, exist_ok=True)
        self._take_data_dir()
        await asyncio.to_thread(data_files.check, self.data_dir)
        if self.settings.secure:
            self.tls = await asyncio.to_thread(LocalTls, self.data_dir / "tls")
            if self.kubernetes is not None:
                cert, ca = self.tls.kubernetes_file, self.tls.ca_file
                self.kubernetes = replace(self.kubernetes, cert_file=cert, ca_file=ca)
        announce(self.tls, self.api_ports)
        self._describe_parts()
        await asyncio.gather(*(part.start() for name, part in self.parts.items() if not is_role(name)))
        await asyncio.to_thread(self._migrate)
        if self.kubernetes is not None:
            await self.kubernetes.wait_until_ready()
        await asyncio.gather(*(part.start() for name, part in self.parts.items() if is_role(name)))
        await self._wait_until_ready()
        if self.has_own_mesos and not self.settings.simulate:
            from services.lab.local.sandboxes import remove_periodically

            masters = [self.mesos, *self.more_masters.values()]
            self._sandbox_cleaner = asyncio.create_task(
                remove_periodically(self.database, masters, self.token), name="sandboxes"
            )

    async def stop(self) -> None:
        """Stop roles first: they would report that the others are missing."""
        if self._sandbox_cleaner is not None:
            self._sandbox_cleaner.cancel()
        await asyncio.gather(*(part.stop() for name, part in self.parts.items() if is_role(name)))
        await asyncio.gather(*(part.stop() for name, part in self.parts.items() if not is_role(name)))
        if self.settings.mesos and self.is_temporary and "hostmgr" in self.parts:
            await self._tear_down()
        if self.settings.own_kubernetes and self.is_temporary and kubernetes.HOST_MANAGER in self.parts:
            await asyncio.to_thread(self._remove_pods, self.settings.own_kubernetes)
        if self._lock is not None:
            self._lock.close()
        self._taken.close()
        if self.tls is not None:
            announce(None, self.api_ports)
        if self.is_temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    async def _tear_down(self) -> None:
        """Remove the store and with it the id of the framework, which Mesos would keep for days."""
        argv = (sys.executable, "-m", "services.teardown")
        process = await asyncio.create_subprocess_exec(
            *argv,
            env=self.parts["hostmgr"].whole_environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()  # it ends after its own timeout
        for line in output.decode(errors="replace").splitlines():
            self.report("mesos", line)

    def _remove_pods(self, own: OwnKubernetes) -> None:
        """End the pods in the cluster of the user: their records are removed with the temporary data folder."""
        try:
            namespace = load({**os.environ, **self.settings.environment}).kubernetes_namespace
            removed = own.remove_pods(namespace)
            self.report(kubernetes.CLUSTER, f"{removed} pods are deleted; with --data they would stay")
        except (OSError, InvalidArgument) as error:
            self.report(kubernetes.CLUSTER, f"the pods of cluster {own.cluster} stay: {error}")

    def part(self, name: str) -> Part:
        if name not in self.parts:
            raise InvalidArgument(f"no part {name!r}; there are {', '.join(self.parts)}")
        return self.parts[name]

    def _take_data_dir(self) -> None:
        """Lock the data folder: two clusters in it would end each other's pods. The kernel frees the lock with its
        process."""
        self._lock = (self.data_dir / "lock").open("a+")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.seek(0)
            holder = self._lock.read().strip() or "unknown"
            raise Unavailable(f"data folder {self.data_dir} is in use by the `peloton up` with pid {holder}") from None
        self._lock.truncate(0)
        self._lock.write(str(os.getpid()))
        self._lock.flush()

    def _migrate(self) -> None:
        from services.storage.migrate import upgrade

        upgrade(self.database)

    def _describe_parts(self) -> None:
        given = list_given()
        environment: dict[str, str | None] = {
            **({} if self.settings.temporal else without_client_configuration(os.environ)),
            "PELOTON_DATABASE": self.database,
            "PELOTON_TEMPORAL": self.temporal,
            "PELOTON_MESOS": self.mesos,
            "PYTHONUNBUFFERED": "1",
            "MINICLUSTER_TOKEN": self.token,
            **own_defaults(given, has_real_mesos=bool(self.settings.mesos)),
            **self._prefetch_default(given),
            **({} if PODS_API in given else {PODS_API: self.addresses}),
            **self.settings.environment,
        }

        def add(name: str, argv: Sequence[str], **own: str) -> None:
            log_path = self.data_dir / "logs" / f"{name}.log"
            report = self._report_server if name == TEMPORAL else self.report
            health_path = self.data_dir / "health" / f"{name}.json" if is_role(name) else None
            ports = self._take_metrics_ports(name, given) if is_role(name) else {}
            whole = {**environment, **own, **self._tls_environment(name), **ports, HEALTH_FILE: str(health_path or "")}
            self.parts[name] = Part(name, argv, whole, log_path, report, health_path)

        python = [sys.executable, "-m"]
        if not self.settings.temporal:
            store = self.data_dir / "temporal.db"
            command = server_command(self.temporal, self.ui_port, store, self.settings.temporal_config)
            add(TEMPORAL, command, **own_threads(os.environ))
        if self.has_own_mesos:
            add("minicluster", [*python, "services.lab.mesos", *self.minicluster_arguments()])
        counts = {"api": self.settings.apis, "worker": self.settings.workers}
        for role in ROLES[self._has_no_mesos :]:  # the first one manages hosts of Mesos
            for number, name in enumerate(several(role, counts.get(role, 1))):
                own = {"PELOTON_PORT": str(self.api_ports[number])} if role == "api" else {}
                add(name, [*python, "cli.main", "serve", role], **own)
        for index, (cluster, master) in enumerate(self.more_masters.items(), 2):
            own = {"PELOTON_CLUSTER": cluster, "PELOTON_MESOS": master, PREFETCH_URL: prefetch_url(master)}
            own, arguments = own | NO_LATENCIES, self.minicluster_arguments(index, cluster)
            add(f"minicluster-{cluster}", [*python, "services.lab.mesos", *arguments], **own)
            add(f"hostmgr-{cluster}", [*python, "cli.main", "serve", "hostmgr"], **own)

        if self.settings.web:
            own = {"PELOTON_API": self.addresses, "PELOTON_WEB_PORT": str(self.web_port)}
            add(WEB, [*python, "cli.main", "serve", WEB], PELOTON_TEMPORAL_UI=self.ui_url, **own)
        if self.settings.bridge:
            own = {"PELOTON_API": self.addresses, "PELOTON_AURORA_PORT": str(self.bridge_port)}
            add(BRIDGE, [*python, "cli.main", "serve", BRIDGE], **own)
        if self.kubernetes is not None:
            self._describe_kubernetes(self.kubernetes, add)
        if self.settings.own_kubernetes is not None:
            own = self.settings.own_kubernetes.environment()
            add(kubernetes.HOST_MANAGER, [*python, "cli.main", "serve", "hostmgr"], **own)

    def _report_server(self, part: str, line: str) -> None:
        """Show a line of Temporal's server, unless its file alone should have it."""
        if not is_passing_error(line):
            self.report(part, line)

    def _take_metrics_ports(self, role: str, given: Collection[str]) -> dict[str, str]:
        """Return the ports of the metrics of a role, of which each process needs its own."""
        if not (self.settings.metrics or METRICS_PORT in given):
            return {}
        names = [role, f"{role}, Temporal's SDK"] if role.partition("-")[0] == "worker" else [role]
        self.metrics_ports |= zip(names, self._taken.take_any(len(names)), strict=True)
        return {
            variable: str(self.metrics_ports[name])
            for variable, name in zip((METRICS_PORT, SDK_METRICS_PORT), names, strict=False)
        }

    def _describe_kubernetes(self, cluster: LocalKubernetes, add: Callable[..., None]) -> None:
        settings, ports = self.settings, self._ports_of(0)
        arguments = cluster.arguments(ports, settings.image_download_s, SIMULATE_VARIABLES, self._pass_env)
        add(kubernetes.CLUSTER, [sys.executable, "-m", "services.lab.kubernetes", *arguments])
        add(
            kubernetes.HOST_MANAGER,
            [sys.executable, "-m", "cli.main", "serve", "hostmgr"],
            **cluster.environment(),
            **({} if settings.no_mesos else NO_LATENCIES),
        )

    def _tls_environment(self, part: str) -> dict[str, str]:
        """Return the variables of a part: settings of a role, and for an emulated cluster those of its pods."""
        if self.tls is None or part == "temporal":
            return {}
        return self.tls.environment_of(role_of(part)) if is_role(part) else self.tls.pod_environment

    @property
    def _pass_env(self) -> tuple[str, ...]:
        return (*self.settings.pass_env, *(POD_VARIABLES if self.tls is not None else ()))

    def _ports_of(self, index: int) -> range:
        """Return the share of the pod ports of the cluster with this index, from 1; 0 stands for Kubernetes."""
        share = len(self._pod_ports) // (1 + len(self.more_masters) + (self.settings.kubernetes == 0))
        first = len(self._pod_ports) - share if index == 0 else share * (index - 1)
        return self._pod_ports[first : first + share]

    def _prefetch_default(self, given: Collection[str]) -> dict[str, str]:
        """Return the endpoint by which emulated hosts fetch images ahead, unless the user names another one."""
        if not self.has_own_mesos or PREFETCH_URL in given:
            return {}
        return {PREFETCH_URL: prefetch_url(self.mesos)}

    def minicluster_arguments(self, index: int = 1, cluster: str = "") -> list[str]:
        """Return the command line arguments. ``index``: the cluster's, from 1; ``cluster``: its name, empty for the
        first."""
        master = self.more_masters.get(cluster, self.mesos)
        folder = f"minicluster-{cluster}" if cluster else "minicluster"
        arguments = ["--port", master.rpartition(":")[2], "--data", str(self.data_dir / folder)]
        prefix = f"{cluster}-" if cluster else ""
        arguments += ["--prefix", prefix if self.settings.simulate else f"{prefix}{HOST_PREFIX}"]
        ports = self._ports_of(index)
        arguments += ["--task-ports", f"{ports.start}-{ports.stop - 1}"]
        arguments += ["--agent-timeout", str(AGENT_TIMEOUT_S), "--slack-interval", str(self.settings.slack_interval_s)]
        arguments += ["--image-download", str(self.settings.image_download_s)]
        arguments += ["--sandbox-retention", str(self.settings.sandbox_retention_h)]
        arguments += [argument for name in self._pass_env for argument in ("--pass-env", name)]
        arguments += ["--enforce-disk-quota"] if self.settings.enforce_disk_quota else []
        if self.settings.simulate:
            arguments += ["--simulate", str(self.settings.simulate), "--task-variables", SIMULATE_VARIABLES]
            return [*arguments, "--simulation", str(file)] if (file := self.settings.simulation_file) else arguments
        return [*arguments, "--hosts", str(self.settings.hosts_file)] if self.settings.hosts_file else arguments

    async def _wait_until_ready(self) -> None:
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        missing = "the API"
        while time.monotonic() < deadline_s:
            missing = await asyncio.to_thread(self._find_missing)
            if not missing:
                return
            await asyncio.sleep(0.1)
        raise Unavailable(
            f"the cluster is not ready after {READY_TIMEOUT_S:.0f} s, {missing} is missing; "
            f"logs are in {self.data_dir / 'logs'}"
        )

    def _find_missing(self) -> str:
        """Return the first thing that a job would still wait for; empty when there is none."""
        from peloton.api.v0.maintenance import maintenance_pb2, maintenance_pb2_grpc
        from peloton.api.v0.respool import respool_pb2
        from peloton.api.v0.short_names import respool_pb2_grpc

        if not (self.settings.temporal or starts_workflows(self.temporal)):
            return f"Temporal at {self.temporal}"
        with closing(channels_to_api(self.tls).open(self.address, [])) as channel:
            try:
                hosts = maintenance_pb2_grpc.MaintenanceServiceStub(channel).Query(
                    maintenance_pb2.QueryRequest(), timeout=2
                )
                root = respool_pb2_grpc.ResourceManagerStub(channel).GetResourcePool(
                    respool_pb2.GetRequest(), timeout=2
                )
            except grpc.RpcError as error:
                if isinstance(error, grpc.Call) and error.code() in REFUSALS:
                    return self._find_silent()  # the api asks for credentials that are not here, and so it answers
                return str(error.details()) if isinstance(error, grpc.Call) else str(error)
        if hosts.host_count < self._hosts_expected:
            return f"{self._hosts_expected - hosts.host_count} of {self._hosts_expected} hosts"
        if silent := self._find_silent():
            return silent
        if not any(r.reservation for r in root.poolinfo.config.resources):
            return "the capacity of the root pool"
        return ""

    def _find_silent(self) -> str:
        """Return the first server that does not answer yet; empty when there is none."""
        if away := [address for address in self.addresses.split(",") if not answers(address)]:
            return f"the API at {away[0]}"
        if self.settings.web and not answers(f"127.0.0.1:{self.web_port}"):
            return "the web pages"
        if self.settings.bridge and not answers(f"127.0.0.1:{self.bridge_port}"):
            return "Aurora's API"
        return ""

    def _host_count(self) -> int:
        """Count the hosts of all clusters when they are ready. Raises InvalidArgument."""
        if self.more_masters and self.settings.hosts_file:
            raise InvalidArgument("a hosts file describes one cluster: leave out the other ones, or the file")
        try:
            if self.settings.own_kubernetes is not None:
                return 1
            first = 0 if self.settings.no_mesos else self._count_hosts_of_one()
            nodes = self.kubernetes.node_count if self.kubernetes is not None else 0
            return first + nodes + len(self.more_masters) * self._count_hosts_of_one(emulated=True)
        except ValueError as error:
            raise InvalidArgument(str(error)) from error

    def _count_hosts_of_one(self, emulated: bool = False) -> int:
        """Count the hosts of one cluster that never fail, at least one. Raises ValueError."""
        from services.lab.shared.hosts import default_hosts, load_hosts
        from services.lab.shared.simulation.description import load_simulation

        settings = self.settings
        if settings.mesos and not emulated:
            return 1
        if settings.simulation_file:
            simulation = load_simulation(settings.simulation_file, settings.simulate)
            return max(simulation.steady_count(settings.simulate), 1)
        return settings.simulate or len(load_hosts(settings.hosts_file) if settings.hosts_file else default_hosts())
