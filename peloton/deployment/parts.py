"""The parts of a control plane: each is one service of the outer Peloton."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from peloton.deployment.description import CLIENT_ROLES, Deployment

TEMPORAL, MESOS = "temporal", "mesos"
ORDER = (TEMPORAL, MESOS, "resmgr", "hostmgr", "api", "worker", *CLIENT_ROLES)
"""The order of an upgrade: the resource manager moves workflows whose workers are gone, so it precedes them; what a
role needs precedes it."""
EMULATORS, PROGRAM = (TEMPORAL, MESOS), "PYTHON"
"""The parts that a trial has in place of real ones, and the variable of the program that runs them. They keep the
program that they began with: the emulated Mesos loses its pods when it restarts, and an upgrade must not do that."""
LOCALHOST = "127.0.0.1"
FIRST_PORT, UI_PORT, MESOS_PORT, API_PORT, WEB_PORT = range(5)
"""Numbers of the ports of a trial. The first one is Temporal's."""
PORT_SETTINGS = {"resmgr": "PELOTON_RESMGR_PORT", "hostmgr": "PELOTON_HOSTMGR_PORT", "api": "PELOTON_PORT"}
DISK_MIB = 256
TRIAL_SETTINGS = {
    "PELOTON_LEADER_TTL_S": "3",
    "PELOTON_AGENTS_PERIOD_S": "2",
    "PELOTON_AGENT_REREGISTER_TIMEOUT_S": "20",
}
"""Shorter periods for a trial; the file's settings take precedence."""
ADDRESS = '"${MESOS_CONTAINER_IP:-$(hostname -i | cut -d" " -f1)}"'
"""Shell that prints the address of a pod: Mesos names it, and in Kubernetes the pod has one of its own."""
HEALTH_FILE = '"${MESOS_SANDBOX:-/tmp}/peloton-$PELOTON_TASK_ID.json"'


@dataclass(frozen=True)
class Part:
    """A service of the outer Peloton. Parts that are equal need no update."""

    name: str
    instances: int
    cpu: float
    memory_mib: int
    command: str
    environment: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    port_variable: str = ""  # of the port that the cluster gives out; empty: none
    check: str = ""  # shell that succeeds while a pod serves


def parts_of(deployment: Deployment) -> list[Part]:
    """Return the parts in the order of an upgrade."""
    roles = [role_part(deployment, role) for role in ORDER if role in deployment.sizes]
    return [*(trial_parts(deployment) if deployment.is_trial else ()), *(one for one in roles if one.instances)]


def role_part(deployment: Deployment, role: str) -> Part:
    size = deployment.sizes[role]
    is_client = role in CLIENT_ROLES
    variable = PORT_SETTINGS.get(role, "") if not port_setting(deployment, role) else ""
    upgrade = "--upgrade-schema " if role == "resmgr" else ""  # it is the first one
    lines = [
        f"export PELOTON_HEALTH_FILE={HEALTH_FILE}",
        f"export PELOTON_ADVERTISE={LOCALHOST if deployment.is_trial else ADDRESS}",
        'export PELOTON_HOST="$PELOTON_ADVERTISE"',
        f"exec {shlex.quote(deployment.command)} serve {upgrade}{role}",
    ]
    return Part(
        name=role,
        instances=size.instances,
        cpu=size.cpu,
        memory_mib=size.memory_mib,
        command="\n".join(lines),
        environment={
            **(client_settings if is_client else database_settings)(deployment),
            **port_setting(deployment, role),
        },
        image=deployment.image,
        port_variable=variable,
        check=f"{shlex.quote(program_path(deployment.command, 'python'))} -m services.healthcheck ready {HEALTH_FILE}",
    )


def port_setting(deployment: Deployment, role: str) -> dict[str, str]:
    """Return the setting of a port that stays, or none."""
    trial, port = deployment.is_trial, deployment.trial_port
    ports = {"api": port(API_PORT) if trial else deployment.port, "web": port(WEB_PORT) if trial else 0}
    name = {"api": "PELOTON_PORT", "web": "PELOTON_WEB_PORT"}.get(role, "")
    return {name: str(ports[role])} if ports.get(role) else {}


def database_settings(deployment: Deployment) -> dict[str, str]:
    """Return the settings of roles that work on the database."""
    trial = deployment.is_trial
    temporal = f"{LOCALHOST}:{deployment.trial_port(FIRST_PORT)}" if trial else deployment.temporal
    mesos = f"{LOCALHOST}:{deployment.trial_port(MESOS_PORT)}" if deployment.simulate else deployment.mesos
    return {
        **(TRIAL_SETTINGS if trial else {}),
        "PELOTON_TEMPORAL": temporal,
        "PELOTON_TEMPORAL_NAMESPACE": deployment.namespace,
        "PELOTON_CLUSTER": deployment.name,
        **({"PELOTON_MESOS": mesos} if mesos else {}),
        **({"PELOTON_CONFIG": deployment.config} if deployment.config else {}),
        **({"PELOTON_DATABASE": database} if (database := database_of(deployment)) else {}),
        **deployment.settings,
    }


def client_settings(deployment: Deployment) -> dict[str, str]:
    return {"PELOTON_API": api_address(deployment), **deployment.settings}


def database_of(deployment: Deployment) -> str:
    return f"sqlite:///{deployment.data}/peloton.db" if deployment.is_trial else deployment.database


def api_address(deployment: Deployment) -> str:
    """Return the address of the api that stays, or ""."""
    return f"{LOCALHOST}:{deployment.trial_port(API_PORT)}" if deployment.is_trial else deployment.address


def trial_parts(deployment: Deployment) -> list[Part]:
    """Return Temporal's development server, and the emulated Mesos if the hosts are simulated."""
    data, port = shlex.quote(deployment.data), deployment.trial_port
    temporal = [f"{LOCALHOST}:{port(FIRST_PORT)}", str(port(UI_PORT)), f"{deployment.data}/temporal.db"]
    run_temporal = f'exec "${PROGRAM}" -m services.lab.local.temporal_server {shlex.join(temporal)}'
    server = emulator(deployment, TEMPORAL, f"mkdir -p {data}\n{run_temporal}", FIRST_PORT)
    if not deployment.simulate:
        return [server]
    arguments = ["--port", str(port(MESOS_PORT)), "--data", f"{deployment.data}/mesos"]
    arguments += ["--simulate", str(deployment.simulate), "--task-variables", "PELOTON_SIMULATE"]
    arguments += ["--prefix", "", "--agent-timeout", "5"]
    run_mesos = f'exec "${PROGRAM}" -m services.lab.mesos {shlex.join(arguments)}'
    return [server, emulator(deployment, MESOS, run_mesos, MESOS_PORT)]


def emulator(deployment: Deployment, name: str, command: str, port: int) -> Part:
    """Return a part that a trial has in place of a real one, with the number of the port that it takes."""
    return Part(
        name=name,
        instances=1,
        cpu=0.3,
        memory_mib=1024,
        command=command,
        environment={PROGRAM: program_path(deployment.command, "python")},
        image=deployment.image,
        check=check_port(deployment, port),
    )


def check_port(deployment: Deployment, number: int) -> str:
    """Return a check that succeeds while the port takes connections."""
    program = f"import socket; socket.create_connection(('{LOCALHOST}', {deployment.trial_port(number)}), 5)"
    return f'"${PROGRAM}" -c "{program}"'


def program_path(command: str, program: str) -> str:
    """Return the path of a program of the same installation."""
    folder = command.rpartition("/")[0]
    return f"{folder}/{program}" if folder else program
