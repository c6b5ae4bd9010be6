"""A real Kubernetes control plane for tests: etcd, apiserver, controller manager and, on request, the scheduler.

It has no kubelets: tests create its nodes, see ``fake_kubelet``.
"""

from __future__ import annotations

import ctypes
import http.client
import secrets
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import yaml

from services.lab.local.ports import PortReservations
from tests.kubernetes import build
from tests.kubernetes.client import Client, Login

CERTIFICATES = Path(__file__).parents[1] / "certificates"
PEM = CERTIFICATES / "server.pem"
"""Key and certificate: for the apiserver's TLS and, the key alone, to sign and check the tokens of service accounts."""
USER = "ordinary"
"""User without permissions in RBAC unless a test makes a role for it."""
SYSTEM_NAMESPACES = ("default", "kube-system", "kube-node-lease")
"""Namespaces that an apiserver creates itself, a moment after it reports that it is ready."""
CONTROLLERS = (
    *("node-lifecycle", "taint-eviction", "pod-garbage-collector", "garbage-collector", "namespace"),
    *("disruption", "resourcequota", "job", "deployment", "replicaset", "statefulset", "endpointslice"),
)
AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "Panic"],
    "rules": [{"level": "Metadata"}],
}
START_TIMEOUT_S = 180.0
_POLL_S = 0.05
Flags = dict[str, object]
_PR_SET_PDEATHSIG = 1
_LOG_LINES_SHOWN = 15


def is_built() -> bool:
    return build.is_built()


class ControlPlane:
    """Control plane with a folder and ports of its own: any number of them run side by side."""

    def __init__(
        self,
        folder: Path,
        *,
        scheduler: bool = False,
        node_grace_s: int = 60,
        controllers: Sequence[str] = (),
        is_audited: bool = False,
        flags: Mapping[str, Flags] | None = None,
    ) -> None:
        """Create the control plane. ``node_grace_s``: seconds without a status after which a node is lost, which a busy
        machine reaches soon. ``controllers``: names of more controllers. ``is_audited``: whether the
        apiserver writes each request to ``audit_log``. ``flags``: more flags, by the name of the part.
        """
        self._controllers = (*CONTROLLERS, *controllers)
        self.folder = folder
        self.audit_log, self._is_audited = folder / "audit.jsonl", is_audited
        self.kubeconfig, self.user_kubeconfig = folder / "kubeconfig", folder / "user.kubeconfig"
        self._ports = PortReservations()
        self._etcd, self._etcd_peers, self._api, self._managers, self._schedulers = self._ports.take_any(5)
        self._node_grace_s, self._more_flags = node_grace_s, flags or {}
        self._parts = ["etcd", "kube-apiserver", "kube-controller-manager", *(["kube-scheduler"] if scheduler else [])]
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        admin, user = secrets.token_hex(16), secrets.token_hex(16)
        tls = ssl.create_default_context(cafile=CERTIFICATES / "ca.pem")
        self.login = Login(f"https://127.0.0.1:{self._api}", admin, tls)
        """Login of an administrator."""
        folder.mkdir(parents=True, exist_ok=True)
        tokens = f'{admin},admin,admin,"system:masters"\n{user},{USER},{USER}\n'
        (folder / "tokens.csv").write_text(tokens, encoding="utf-8")
        self.write_kubeconfig(self.kubeconfig, admin)
        self.write_kubeconfig(self.user_kubeconfig, user)
        settings = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(self.kubeconfig), "qps": 100_000, "burst": 100_000},
            "leaderElection": {"leaderElect": False},
        }
        (folder / "scheduler.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
        (folder / "audit.yaml").write_text(yaml.safe_dump(AUDIT), encoding="utf-8")

    def __enter__(self) -> ControlPlane:
        try:
            self.restore()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        for part in list(self._running):
            self.kill(part)
        self._ports.close()

    def write_kubeconfig(self, path: Path, token: str) -> None:
        cluster = {"server": self.login.server, "certificate-authority": str(CERTIFICATES / "ca.pem")}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
        path.write_text(yaml.safe_dump(config), encoding="utf-8")

    def restore(self) -> None:
        """Start the killed parts again."""
        for part in self._parts:
            if part not in self._running:
                self.start(part)

    def process_id(self, part: str) -> int:
        return self._running[part].pid

    def kill(self, part: str) -> None:
        """Kill the part with SIGKILL: an apiserver takes a minute to end by SIGTERM while a watch is open."""
        process = self._running.pop(part)
        process.kill()
        process.wait()

    def forget_before(self, version: int) -> None:
        """Compact the store, as it does some minutes later by itself."""
        with Client(Login(f"http://127.0.0.1:{self._etcd}")) as client:
            reply = client.ask("POST", "/v3/kv/compaction", {"revision": str(version)})
        assert reply.status == http.client.OK, reply.body

    def start(self, part: str) -> None:
        """Start the part on its previous data, and return when it is ready."""
        assert threading.current_thread() is threading.main_thread(), "a part dies with the thread that starts it"
        assert part not in self._running, f"{part} runs"
        with (self.folder / f"{part}.log").open("ab") as log:
            self._running[part] = subprocess.Popen(
                [build.program(), part, *self._flags(part)],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        self._await_ready(part)

    def _flags(self, part: str) -> list[str]:
        flags = {
            "etcd": self._etcd_flags,
            "kube-apiserver": self._apiserver_flags,
            "kube-controller-manager": self._controller_manager_flags,
            "kube-scheduler": self._scheduler_flags,
        }[part]()
        return [f"--{name}={value}" for name, value in (flags | self._more_flags.get(part, {})).items()]

    def _etcd_flags(self) -> dict[str, object]:
        clients, peers = f"http://127.0.0.1:{self._etcd}", f"http://127.0.0.1:{self._etcd_peers}"
        return {
            "data-dir": self.folder / "etcd",
            "listen-client-urls": clients,
            "advertise-client-urls": clients,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"default={peers}",
            "unsafe-no-fsync": "true",  # its data need not survive the machine
            "log-level": "warn",
        }

    def _apiserver_flags(self) -> dict[str, object]:
        return {
            "etcd-servers": f"http://127.0.0.1:{self._etcd}",
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "secure-port": self._api,
            "tls-cert-file": PEM,
            "tls-private-key-file": PEM,
            "client-ca-file": CERTIFICATES / "ca.pem",
            "kubelet-client-certificate": CERTIFICATES / "client.pem",
            "kubelet-client-key": CERTIFICATES / "client.pem",
            "token-auth-file": self.folder / "tokens.csv",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": PEM,
            "service-account-signing-key-file": PEM,
            "service-cluster-ip-range": "10.96.0.0/16",
            "authorization-mode": "RBAC",
            "disable-admission-plugins": "ServiceAccount",  # nothing creates the account `default` in time
            "endpoint-reconciler-type": "none",
            "delete-collection-workers": 16,
            "shutdown-delay-duration": "0s",
            **(
                {"audit-log-path": self.audit_log, "audit-policy-file": self.folder / "audit.yaml"}
                if self._is_audited
                else {}
            ),
        }

    def _controller_manager_flags(self) -> dict[str, object]:
        return {
            "kubeconfig": self.kubeconfig,
            "leader-elect": "false",
            "bind-address": "127.0.0.1",
            "secure-port": self._managers,
            "kube-api-qps": 500,
            "kube-api-burst": 1000,
            "controllers": ",".join(f"{name}-controller" for name in self._controllers),
            "node-monitor-period": "1s",
            "node-monitor-grace-period": f"{self._node_grace_s}s",
        }

    def _scheduler_flags(self) -> dict[str, object]:
        return {
            "config": self.folder / "scheduler.yaml",
            "bind-address": "127.0.0.1",
            "secure-port": self._schedulers,
        }

    def _await_ready(self, part: str) -> None:
        until_s = time.monotonic() + START_TIMEOUT_S
        process = self._running[part]
        while not self._is_ready(part):
            if process.poll() is not None:
                raise RuntimeError(f"{part} ended at once:\n{self._last_lines(part)}")
            if time.monotonic() > until_s:
                raise RuntimeError(f"{part} is not ready after {START_TIMEOUT_S:.0f} s:\n{self._last_lines(part)}")
            time.sleep(_POLL_S)

    def _is_ready(self, part: str) -> bool:
        if part == "kube-apiserver":
            login, path = self.login, "/readyz"
        elif part == "etcd":
            login, path = Login(f"http://127.0.0.1:{self._etcd}"), "/health"
        else:  # a self-signed certificate
            port = self._managers if part == "kube-controller-manager" else self._schedulers
            trusting = ssl._create_unverified_context()
            login, path = Login(f"https://127.0.0.1:{port}", tls=trusting), "/healthz"
        paths = [path]
        if part == "kube-apiserver":
            paths += [f"/api/v1/namespaces/{name}" for name in SYSTEM_NAMESPACES]
        with Client(login) as client:
            try:
                return all(client.ask("GET", each).status == http.client.OK for each in paths)
            except (OSError, http.client.HTTPException):
                return False

    def _last_lines(self, part: str) -> str:
        return "\n".join((self.folder / f"{part}.log").read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:])


def die_with_parent() -> None:
    """Make the kernel end the child when its parent is killed, before it becomes a part."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
