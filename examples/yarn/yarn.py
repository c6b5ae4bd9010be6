"""YARN on Peloton: start it, submit to it, and stop it.

python examples/yarn/yarn.py start /yarn
python examples/yarn/yarn.py shell 'echo hello; sleep 5' --containers 3
python examples/yarn/yarn.py stop
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import grpc
from controller import metrics_of
from settings import environment, java, site, write_configuration

from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.client import Client

HERE = Path(__file__).resolve().parent
NODE_CORES, NODE_MIB, MANAGER_MIB, OVERHEAD_MIB = 2, 1024, 640, 384
NOTICE_S = 60
FIRST_PORT = 17_030
READY_MAX_S = 120.0
SHELL = "org.apache.hadoop.yarn.applications.distributedshell"


def job_id(work: str, part: str) -> str:
    """Return the id of a service. It follows from the folder, so that other commands find it."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"yarn-example/{work}/{part}"))


def spec(options: argparse.Namespace, part: str, **given: Any) -> stateless_pb2.JobSpec:
    is_manager = part == "manager"
    ports = () if is_manager else ("NODE_PORT", "LOCALIZER_PORT", "WEB_PORT")
    kind = pod_pb2.PortSpec.PORT_TYPE_DYNAMIC_ENV_VAR
    program = HERE / ("controller.py" if is_manager else "node.py")
    container = pod_pb2.ContainerSpec(
        name=part,
        resource=pod_pb2.ResourceSpec(
            cpu_limit=0.5 if is_manager else 1,
            mem_limit_mb=MANAGER_MIB if is_manager else NODE_MIB + OVERHEAD_MIB,
            disk_limit_mb=256,
        ),
        entrypoint=pod_pb2.CommandSpec(value=f"exec {sys.executable} {program}"),
        environment=[pod_pb2.Environment(name="YARN_EXAMPLE", value=json.dumps(given, sort_keys=True))],
        ports=[pod_pb2.PortSpec(name=name.lower(), env_name=name, type=kind) for name in ports],
    )
    pod = pod_pb2.PodSpec(containers=[container], kill_grace_period_seconds=NOTICE_S + 15)
    if is_manager:  # its state outlives its pods, and keeps it on its host
        pod.volume.container_path, pod.volume.size_mb = "state", 64
    return stateless_pb2.JobSpec(
        name=f"yarn-{part}",
        owning_team="yarn",
        instance_count=1 if is_manager else options.least,
        sla=stateless_pb2.SlaSpec(preemptible=not is_manager, maximum_unavailable_instances=0),
        default_spec=pod,
    )


def start(options: argparse.Namespace) -> None:
    host, work = options.host, options.work
    shared = {
        "port": options.port, "jars": options.jars, "work": work, "notice_s": NOTICE_S, "node_mib": NODE_MIB,
        "node_cores": NODE_CORES,
    }  # fmt: skip
    Path(work).mkdir(parents=True, exist_ok=True)
    nodes, manager = job_id(work, "nodes"), job_id(work, "manager")
    own = {"least": options.least, "most": options.most, "nodes_job": nodes, "peloton": options.address}
    with Client(options.address) as client:
        client.submit(options.pool, spec(options, "manager", **shared, **own), job_id=manager)
        client.submit(options.pool, spec(options, "nodes", **shared, manager=host), job_id=nodes)
    conf = Path(work) / "conf"
    write_configuration(conf, site(host, options.port, options.jars, work))
    deadline_s = time.monotonic() + READY_MAX_S
    while True:
        try:
            if metrics_of(host, options.port)["activeNodes"] >= options.least:
                break
        except OSError:
            pass
        if time.monotonic() > deadline_s:
            sys.exit(f"YARN is not up after {READY_MAX_S:g} s: peloton job logs yarn-manager")
        time.sleep(0.5)
    print(f"YARN is up: http://{host}:{options.port + 4}/  HADOOP_CONF_DIR={conf}")


def shell(options: argparse.Namespace) -> None:
    """Run a shell command in containers, by YARN's distributed shell."""
    conf = Path(options.work) / "conf"
    [jar] = Path(options.jars).glob("hadoop-yarn-applications-distributedshell-*.jar")
    words = [
        *("-jar", str(jar), "-shell_command", options.command, "-num_containers", str(options.containers)),
        *("-container_memory", str(options.memory), "-master_memory", "256"),
    ]
    command = java(conf, options.jars, options.work, f"{SHELL}.Client", *words)
    with subprocess.Popen(
        command, env=environment(conf), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as client:
        assert client.stdout is not None
        for line in client.stdout:  # its report of each second is left out
            if "Got application report" not in line and "DistributedShell" not in line:
                print(line, end="", flush=True)
    sys.exit(client.returncode)


def stop(options: argparse.Namespace) -> None:
    """Delete the services, the node managers first, and wait until they are gone."""
    with Client(options.address) as client:
        for part in ("nodes", "manager"):
            key = peloton_pb2.JobID(value=job_id(options.work, part))
            deadline_s, is_asked = time.monotonic() + READY_MAX_S, False
            while (job := read(client, key)) is not None and time.monotonic() < deadline_s:
                if not is_asked:
                    version = job.status.version
                    request = stateless_svc_pb2.DeleteJobRequest(job_id=key, version=version, force=True)
                    client.services.DeleteJob(request)
                    is_asked = True
                time.sleep(0.5)
            if job is not None:
                sys.exit(f"yarn-{part} is not gone after {READY_MAX_S:g} s: peloton job why {key.value}")


def read(client: Client, key: peloton_pb2.JobID) -> stateless_pb2.JobInfo | None:
    try:
        return client.services.GetJob(stateless_svc_pb2.GetJobRequest(job_id=key)).job_info
    except grpc.RpcError as error:
        if isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.NOT_FOUND:
            return None
        raise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--address", default=os.environ.get("PELOTON_ADDRESS", "localhost:5397"), help="of Peloton")
    parser.add_argument("--host", default="127.0.0.1", help="host of the resource manager")
    parser.add_argument("--port", type=int, default=FIRST_PORT, help="first of the six ports of the resource manager")
    parser.add_argument("--jars", default=str(HERE / "jars"), help="folder of the jars")
    parser.add_argument("--work", default=str(Path(tempfile.gettempdir()) / "yarn-on-peloton"), help="shared folder")
    verbs = parser.add_subparsers(required=True, metavar="start|shell|stop")
    verb = verbs.add_parser("start")
    verb.add_argument("pool")
    verb.add_argument("--least", type=int, default=1, help="node managers at least")
    verb.add_argument("--most", type=int, default=3, help="node managers at most")
    verb.set_defaults(act=start)
    verb = verbs.add_parser("shell")
    verb.add_argument("command")
    verb.add_argument("--containers", type=int, default=1)
    verb.add_argument("--memory", type=int, default=256, help="MiB of a container")
    verb.set_defaults(act=shell)
    verbs.add_parser("stop").set_defaults(act=stop)
    options = parser.parse_args()
    options.act(options)


if __name__ == "__main__":
    main()
