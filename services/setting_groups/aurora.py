"""Settings of the Aurora bridge."""

from __future__ import annotations

from dataclasses import dataclass

from services.setting_rules import BRIDGE, POOL_PATH, PORT_MAX, URL, WORD, ZOOKEEPER, setting


@dataclass(frozen=True)
class AuroraSettings:
    aurora_port: int = setting(5396, BRIDGE, "port of the Aurora bridge; 0 picks a free one", low=0, high=PORT_MAX)
    aurora_zookeeper: str = setting(
        "",
        BRIDGE,
        "node of ZooKeeper under which each bridge registers itself, as Aurora's clients look for a scheduler: "
        "`zk://HOST:PORT,HOST:PORT/aurora/scheduler`; empty: none",
        form=ZOOKEEPER,
    )
    aurora_pool: str = setting(
        "/AuroraBridge", BRIDGE, "path of the pool of its jobs; created if it is not there", form=POOL_PATH
    )
    aurora_gpu_pool: str = setting(
        "/GPUAuroraBridge", BRIDGE, "path of the pool of its jobs that ask for gpus", form=POOL_PATH
    )
    aurora_thermos: str = setting(
        "",
        BRIDGE,
        "path or URL of the Thermos executor, such as `/usr/share/aurora/bin/thermos_executor.pex`; empty: pods run "
        "the command of the first process of their task without Thermos",
        form=WORD,
    )
    aurora_thermos_flags: str = setting(
        "--preserve_env --nosetuid-health-checks --nosetuid --no-create-user",
        BRIDGE,
        "command line of the Thermos executor",
        may_be_empty=True,
    )
    aurora_thermos_resources: str = setting("", BRIDGE, "files fetched with the Thermos executor, with commas")
    aurora_thermos_cpu: float = setting(0.0, BRIDGE, "cpus of the Thermos executor itself", low=0, high=1_000)
    aurora_thermos_memory_mib: int = setting(0, BRIDGE, "memory of the Thermos executor in MiB", low=0, high=1_000_000)
    aurora_in_place: bool = setting(False, BRIDGE, "whether updates prefer the host that an instance was on")
    aurora_pod_runs_depth: int = setting(
        6, BRIDGE, "runs of each instance that `getTasksWithoutConfigs` returns", low=1, high=100
    )
    aurora_tasks_max: int = setting(
        1_000, BRIDGE, "tasks up to which it returns more than two runs of each instance", low=1, high=1_000_000
    )
    aurora_kafka_url: str = setting(
        "",
        BRIDGE,
        "URL of a topic of a Kafka REST proxy to which one bridge sends each change of a task, such as "
        "`http://HOST:PORT/topics/TOPIC`; empty: none does",
        form=URL,
    )
