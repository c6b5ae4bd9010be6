"""A machine with a real kubelet and containerd, one node of a real control plane.

Its processes live in namespaces that end with this process, and ``keeper`` removes the rest after any kill.
"""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from ipaddress import IPv4Network
from pathlib import Path
from types import TracebackType

import yaml

from services.lab.local.ports import OWN_PORTS, PortReservations
from tests.kubernetes import build, images, keeper
from tests.kubernetes.client import Client, Json
from tests.kubernetes.control_plane import CERTIFICATES, PEM, ControlPlane

NODE = "localhost"
"""Name by which the apiserver finds the kubelet on the loopback address."""
IMAGE = "docker.io/library/busybox:stable"
PAUSE = "peloton.test/pause:1"
NETWORKS = [*IPv4Network("198.18.0.0/15").subnets(new_prefix=27)]
"""Networks for 29 pods each: two machines side by side have different ones, as they have different ports."""
START_TIMEOUT_S = 90.0
_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "pids")
_SCRIPT = Path(__file__).with_name("machine.sh")
_POLL_S = 0.1
_PODS = "/api/v1/namespaces/default/pods"


class CannotRun(Exception):
    """Raised when this machine lacks a requirement of a kubelet or a container, with one sentence as its message."""


def debian() -> Path:
    """Return the folder of Debian's programs, laid out as in ``/``."""
    return build.cache() / "debian" / "root"


def unfit() -> str:
    """Return why this machine cannot run a kubelet, in a sentence; empty when a quick check finds no reason."""
    if sys.platform != "linux":
        return "a kubelet runs on Linux"
    if os.geteuid() != 0:
        return "a kubelet runs as root"
    if lacking := [name for name in _CONTROLLERS if not (keeper.CGROUPS / name / "tasks").is_file()]:
        return f"this machine has no control groups of version 1 for {lacking[0]}"
    if lacking := [name for name in ("unshare", "mount") if shutil.which(name) is None]:
        return f"{lacking[0]} is not installed"
    try:
        tried = keeper.CGROUPS / "memory" / f"{keeper.CGROUP_PREFIX}{os.getpid()}"
        tried.mkdir()
        tried.rmdir()
    except OSError as error:
        return f"this machine makes no control groups: {error}"
    argv = [*keeper.NAMESPACES, "mount", "-t", "tmpfs", "tmpfs", "/run"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return f"this machine allows no mounts in namespaces: {done.stderr.strip()}" if done.returncode else ""


def lacking() -> str:
    """Return why a kubelet cannot run here, also for missing programs; containers are checked when the machine
    starts.
    """
    if not (build.is_built() and build.is_built(build.KUBELET) and debian().is_dir()):
        return "no kubelet with containerd is there: make kubernetes"
    return unfit()


class Machine:
    """Node with a real kubelet, at most one at a time on a control plane, because of its name."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane, self._folder = plane, Path(tempfile.mkdtemp(prefix="kubelet-"))
        self._cgroup = f"{keeper.CGROUP_PREFIX}{os.getpid()}"
        self._ports = PortReservations()
        [self._port] = self._ports.take_any(1)
        self._keeper: subprocess.Popen[bytes] | None = None
        self._log = (self._folder / "log").open("w+b")

    def __enter__(self) -> Machine:
        """Return when the node is ready and a pod has run on it. Raises CannotRun."""
        try:
            self._start()
            self._run_a_pod()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        if self._keeper is not None:
            assert self._keeper.stdin is not None
            self._keeper.stdin.close()
            self._keeper.wait()
        shutil.rmtree(self._folder, ignore_errors=True)  # in case no keeper has done it
        self._log.close()
        self._ports.close()

    def _start(self) -> None:
        self._write_files()
        root = debian()
        script = ["sh", str(_SCRIPT), str(self._folder), self._cgroup, IMAGE]
        self._keeper = subprocess.Popen(
            [sys.executable, keeper.__file__, self._cgroup, str(self._folder), *script, *self._kubelet()],
            env={**os.environ, "PATH": f"{root}/usr/bin:{root}/usr/sbin:{os.environ.get('PATH', os.defpath)}"},
            stdin=subprocess.PIPE,  # until it is closed, by us or by our end
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._await(self._is_ready, "the node is not Ready")

    def _kubelet(self) -> list[str]:
        flags = {
            "config": self._folder / "kubelet.yaml",
            "kubeconfig": self.plane.kubeconfig,
            "root-dir": "/var/lib/kubelet",
            "cert-dir": "/var/lib/kubelet/pki",
            "hostname-override": NODE,
        }
        return [str(build.program(build.KUBELET)), *(f"--{name}={value}" for name, value in flags.items())]

    def _run_a_pod(self) -> None:
        """Run a pod with an address and a limit, which a quick check cannot cover."""
        limits = {"resources": {"limits": {"cpu": "100m", "memory": "64Mi"}}}
        spec = {"nodeName": NODE, "restartPolicy": "Never", "tolerations": [{"operator": "Exists"}]}
        containers = [{"name": "main", "image": IMAGE, "command": ["true"], **limits}]
        body = {"metadata": {"name": "first"}, "spec": {**spec, "containers": containers}}
        with Client(self.plane.login) as client:
            made = client.ask("POST", _PODS, body)
            assert made.status == http.client.CREATED, made.body

            def has_run() -> bool:
                status = client.ask("GET", f"{_PODS}/first").json()["status"]
                if status["phase"] == "Failed":
                    raise CannotRun(f"a first pod failed: {status}")
                return bool(status["phase"] == "Succeeded")

            self._await(has_run, "a first pod has not run")
            client.ask("DELETE", f"{_PODS}/first?gracePeriodSeconds=0")

    def _write_files(self) -> None:
        network = self._folder / "network"
        network.mkdir(parents=True)
        pause = ["/bin/busybox", "sleep", "2147483647"]
        images.write(self._folder / "images.tar", debian() / "bin/busybox", {IMAGE: ["/bin/sh"], PAUSE: pause})
        addresses = {
            "type": "host-local",
            "subnet": str(NETWORKS[self._port - OWN_PORTS.start]),
            "dataDir": str(self._folder / "addresses"),
        }
        plugin = {"type": "ptp", "ipam": addresses}
        (network / "pods.conflist").write_bytes(
            images.encode({"cniVersion": "0.4.0", "name": "pods", "plugins": [plugin]})
        )
        (self._folder / "containerd.toml").write_text(
            _CONTAINERD.format(folder=self._folder, root=debian(), pause=PAUSE)
        )
        (self._folder / "kubelet.yaml").write_text(yaml.safe_dump(self._kubelet_config()), encoding="utf-8")

    def _kubelet_config(self) -> Json:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "port": self._port,
            "healthzPort": 0,
            "tlsCertFile": str(PEM),
            "tlsPrivateKeyFile": str(PEM),
            "authentication": {
                "x509": {"clientCAFile": str(CERTIFICATES / "ca.pem")},
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._cgroup}",
            "enforceNodeAllocatable": [],
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "oomScoreAdj": 0,
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "0%"},  # the kubelet never evicts
            "resolvConf": "",
            "volumePluginDir": str(self._folder / "plugins"),
        }

    def _await(self, condition: Callable[[], bool], otherwise: str) -> None:
        assert self._keeper is not None
        until_s = time.monotonic() + START_TIMEOUT_S
        while not condition():
            if self._keeper.poll() is not None:
                raise CannotRun(f"no container or kubelet starts here: {self._last_line()}")
            if time.monotonic() > until_s:
                raise CannotRun(f"{otherwise} after {START_TIMEOUT_S:.0f} s: {self._last_line()}")
            time.sleep(_POLL_S)

    def _is_ready(self) -> bool:
        with Client(self.plane.login) as client:
            reply = client.ask("GET", f"/api/v1/nodes/{NODE}")
        if reply.status != http.client.OK:
            return False
        node = reply.json()
        is_ready = any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", []))
        return is_ready and not node["spec"].get("taints")

    def _last_line(self) -> str:
        self._log.seek(0)
        lines = [line for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1] if lines else "it says nothing"


_CONTAINERD = """version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
restrict_oom_score_adj = true
disable_apparmor = true

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = "{root}/usr/sbin/runc"
SystemdCgroup = false

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{root}/usr/lib/cni"
conf_dir = "{folder}/network"
"""
