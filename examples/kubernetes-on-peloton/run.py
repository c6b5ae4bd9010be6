"""A control plane of Kubernetes as services of Peloton: create it, upgrade it, delete it.

python examples/kubernetes-on-peloton/run.py --programs PATH
python examples/kubernetes-on-peloton/run.py --programs OTHER --upgrade
python examples/kubernetes-on-peloton/run.py --delete

PATH is a folder with etcd, kube-apiserver, kube-controller-manager and kube-scheduler, or the one program with all of
them that `make kubernetes` builds.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shlex
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc

from peloton.api.v0.respool import respool_pb2
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.client import Client

HOST, FIRST_PORT = "127.0.0.1", 17_050
WAIT_MAX_S, CALL_MAX_S, POLL_S = 300.0, 10.0, 0.5
GRACE_S = 10
"""Seconds until a part is killed that was asked to end: an apiserver with open watches takes a minute otherwise."""
DISK_MIB, VOLUME_MIB, RETRIES_MAX = 128, 512, 1
CHECK_PERIOD_S, CHECK_TIMEOUT_S, CHECK_FAILURES_MAX = 5, 10, 6
FAILED = ("FAILED", "ROLLED_BACK", "ABORTED")


@dataclass(frozen=True)
class Part:
    """One service. ``health`` is a URL in which the shell replaces $PORT, the port that the cluster gives to a pod."""

    name: str
    cpu: float
    memory_mib: int
    flags: dict[str, object]
    health: str
    instances: int = 1
    has_volume: bool = False


def parts_of(data: Path, first_port: int) -> Iterator[Part]:
    """Yield the parts in the order of their start, which is that of an upgrade too."""
    store, peers, api = (f"{scheme}://{HOST}:{first_port + n}" for n, scheme in enumerate(("http", "http", "https")))
    flags: dict[str, object] = {
        "data-dir": "data/etcd",
        "listen-client-urls": store,
        "advertise-client-urls": store,
        "listen-peer-urls": peers,
        "initial-advertise-peer-urls": peers,
        "initial-cluster": f"default={peers}",
        "log-level": "warn",
    }
    yield Part("etcd", 0.3, 384, flags, f"{store}/health", has_volume=True)
    pem, key = data / "server.pem", data / "server.key"
    flags = {
        "etcd-servers": store,
        "bind-address": HOST,
        "advertise-address": HOST,
        "secure-port": first_port + 2,
        "tls-cert-file": pem,
        "tls-private-key-file": key,
        "token-auth-file": data / "tokens.csv",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": pem,
        "service-account-signing-key-file": key,
        "service-cluster-ip-range": "10.96.0.0/16",
        "authorization-mode": "RBAC",
        "endpoint-reconciler-type": "none",  # it refuses addresses of the loopback
        "shutdown-delay-duration": "0s",
    }
    yield Part("kube-apiserver", 0.5, 1024, flags, f"{api}/livez?exclude=etcd")
    shared = {"kubeconfig": data / "kubeconfig", "bind-address": HOST, "secure-port": "$PORT"}
    keys = {"service-account-private-key-file": key, "root-ca-file": pem, "use-service-account-credentials": "false"}
    health = f"https://{HOST}:$PORT/healthz"
    yield Part("kube-controller-manager", 0.2, 384, {**shared, **keys}, health, instances=2)
    yield Part("kube-scheduler", 0.2, 384, shared, health, instances=2)


def write_credentials(data: Path, server: str) -> None:
    """Write a certificate that is its own authority, a token and a kubeconfig, unless they are there."""
    kubeconfig, pem, key = data / "kubeconfig", data / "server.pem", data / "server.key"
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    if kubeconfig.exists():
        return
    options = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "365"]
    options += ["-subj", "/CN=kubernetes-on-peloton", "-addext", f"subjectAltName=IP:{HOST}"]
    options += ["-addext", "keyUsage=critical,digitalSignature,keyCertSign", "-keyout", str(key), "-out", str(pem)]
    subprocess.run(["openssl", "req", "-x509", *options], check=True, capture_output=True)
    token = secrets.token_hex(16)
    (data / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
    name = "peloton"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority": str(pem)}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    kubeconfig.write_text(json.dumps(config, indent=1))  # JSON is YAML


def spec_of(part: Part, programs: Path, pool: str) -> stateless_pb2.JobSpec:
    program = shlex.join([str(programs / part.name)] if programs.is_dir() else [str(programs), part.name])
    flags = [f'--{name}="{value}"' for name, value in part.flags.items()]
    container = pod_pb2.ContainerSpec(
        name=part.name,
        resource=pod_pb2.ResourceSpec(cpu_limit=part.cpu, mem_limit_mb=part.memory_mib, disk_limit_mb=DISK_MIB),
        entrypoint=pod_pb2.CommandSpec(value=" ".join(["exec", program, *flags])),
        liveness_check=pod_pb2.HealthCheckSpec(
            enabled=True,
            type=pod_pb2.HealthCheckSpec.HEALTH_CHECK_TYPE_COMMAND,
            initial_interval_secs=CHECK_PERIOD_S,
            interval_secs=CHECK_PERIOD_S,
            timeout_secs=CHECK_TIMEOUT_S,
            max_consecutive_failures=CHECK_FAILURES_MAX,
            command_check=pod_pb2.HealthCheckSpec.CommandCheck(command=f'curl -fsk "{part.health}"'),
        ),
    )
    if "$PORT" in part.health:
        container.ports.add(name="serves", env_name="PORT", type=pod_pb2.PortSpec.PORT_TYPE_DYNAMIC_ENV_VAR)
    pod = pod_pb2.PodSpec(containers=[container], kill_grace_period_seconds=GRACE_S)
    if part.has_volume:
        pod.volume.container_path, pod.volume.size_mb = "data", VOLUME_MIB
    return stateless_pb2.JobSpec(
        name=part.name,
        owning_team="kubernetes",
        description=f"{part.name} of a Kubernetes",
        instance_count=part.instances,
        sla=stateless_pb2.SlaSpec(maximum_unavailable_instances=1),
        default_spec=pod,
        placement=stateless_pb2.Placement(spread=[stateless_pb2.Spread(label="hostname", max_skew=1, soft=True)]),
        respool_id=peloton_pb2.ResourcePoolID(value=pool),
    )


class Services:
    """The parts in Peloton. Their ids follow from the folder, so that other calls find them."""

    def __init__(self, client: Client, data: Path) -> None:
        self.client, self.data = client, data

    def key(self, name: str) -> peloton_pb2.JobID:
        return peloton_pb2.JobID(value=str(uuid.uuid5(uuid.NAMESPACE_URL, f"kubernetes-on-peloton{self.data}/{name}")))

    def read(self, name: str) -> stateless_pb2.JobInfo | None:
        try:
            return self.client.services.GetJob(stateless_svc_pb2.GetJobRequest(job_id=self.key(name))).job_info
        except grpc.RpcError as error:
            if isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.NOT_FOUND:
                return None
            raise

    def create(self, spec: stateless_pb2.JobSpec) -> None:
        """Create a service, one pod after the other, unless it is there."""
        is_new = self.read(spec.name) is None
        if is_new:
            rollout = stateless_pb2.CreateSpec(
                batch_size=1, max_instance_retries=RETRIES_MAX, max_tolerable_instance_failures=1
            )
            request = stateless_svc_pb2.CreateJobRequest(job_id=self.key(spec.name), spec=spec, create_spec=rollout)
            self.client.services.CreateJob(request)
        self.wait(spec.name, is_new)

    def update(self, spec: stateless_pb2.JobSpec) -> None:
        """Replace the pods one by one; an update that fails is rolled back."""
        job = self.read(spec.name)
        if job is None:
            sys.exit(f"{spec.name} is not there: leave out --upgrade")
        rollout = stateless_pb2.UpdateSpec(
            batch_size=1,
            rollback_on_failure=True,
            max_instance_retries=RETRIES_MAX,
            max_tolerable_instance_failures=1,
        )
        version = job.status.version
        self.client.services.ReplaceJob(
            stateless_svc_pb2.ReplaceJobRequest(job_id=job.job_id, version=version, spec=spec, update_spec=rollout)
        )
        self.wait(spec.name, is_new=True)

    def delete(self, name: str) -> None:
        if (job := self.read(name)) is None:
            return
        request = stateless_svc_pb2.DeleteJobRequest(job_id=job.job_id, version=job.status.version, force=True)
        self.client.services.DeleteJob(request)
        deadline_s = time.monotonic() + WAIT_MAX_S
        while self.read(name) is not None:
            pause(deadline_s, name)

    def wait(self, name: str, is_new: bool) -> None:
        """Wait until no update is under way and all pods run. Exits when an update that ``is_new`` failed."""
        deadline_s = time.monotonic() + WAIT_MAX_S
        while (job := self.read(name)) is not None:
            state = stateless_pb2.WorkflowState.Name(job.status.workflow_status.state).removeprefix("WORKFLOW_STATE_")
            if is_new and state in FAILED:
                sys.exit(f"{name}: its update is {state}, see `peloton job why {job.job_id.value}`")
            running = job.status.pod_stats.get("POD_STATE_RUNNING", 0)
            if state in ("INVALID", "SUCCEEDED", *FAILED) and running == job.spec.instance_count:
                return
            pause(deadline_s, name)
        sys.exit(f"{name} was deleted meanwhile")


def pause(deadline_s: float, name: str) -> None:
    if time.monotonic() > deadline_s:
        sys.exit(f"{name} is not done after {WAIT_MAX_S:g} s, see `peloton job list`; call this again to continue")
    time.sleep(POLL_S)


def await_ready(port: int, data: Path) -> None:
    """Wait until the apiserver reports that it is ready."""
    deadline_s = time.monotonic() + WAIT_MAX_S
    trust = ssl.create_default_context(cafile=str(data / "server.pem"))
    while True:
        try:
            with urllib.request.urlopen(f"https://{HOST}:{port}/readyz", timeout=CALL_MAX_S, context=trust):
                return
        except OSError:
            pause(deadline_s, "kube-apiserver")


def pool_at(client: Client, path: str) -> str:
    answer = client.respools.LookupResourcePoolID(
        respool_pb2.LookupRequest(path=respool_pb2.ResourcePoolPath(value=path))
    )
    return str(answer.id.value) or sys.exit(f"no pool {path}: create it, as pool.yaml has it")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--address", default=os.environ.get("PELOTON_ADDRESS", "localhost:5397"), help="of Peloton")
    parser.add_argument("--pool", default="/kubernetes")
    parser.add_argument("--programs", metavar="PATH", type=Path, help="folder of the programs, or one that is all")
    folder = Path(tempfile.gettempdir()) / "kubernetes-on-peloton"
    parser.add_argument("--data", type=Path, default=folder, help="folder of the kubeconfig and the certificate")
    parser.add_argument("--port", type=int, default=FIRST_PORT, help="first of three: etcd, its peers, the apiserver")
    acts = parser.add_mutually_exclusive_group()
    acts.add_argument("--upgrade", action="store_true", help="replace the pods by rolling updates")
    acts.add_argument("--delete", action="store_true", help="delete the services; the volume of etcd stays")
    options = parser.parse_args()
    data = options.data.absolute()
    parts = list(parts_of(data, options.port))
    with Client(options.address) as client:
        services = Services(client, data)
        if options.delete:
            for part in reversed(parts):
                services.delete(part.name)
            print("Kubernetes is deleted; etcd's volume stays: peloton volume list --orphaned")
            return
        if options.programs is None or not options.programs.exists():
            parser.error(f"--programs {options.programs}: name the folder or the program that is there")
        write_credentials(data, f"https://{HOST}:{options.port + 2}")
        pool = pool_at(client, options.pool)
        for part in parts:
            spec = spec_of(part, options.programs.absolute(), pool)
            (services.update if options.upgrade else services.create)(spec)
            print(f"{part.name}: {'updated' if options.upgrade else 'runs'}", flush=True)
        await_ready(options.port + 2, data)
    print(
        f"Kubernetes is up: kubectl --kubeconfig {data}/kubeconfig create deployment hello --image=hello --replicas=3"
    )


if __name__ == "__main__":
    main()
