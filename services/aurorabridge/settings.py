"""Settings of the bridge."""

from __future__ import annotations

from dataclasses import dataclass

from services.settings import Settings


@dataclass(frozen=True)
class BridgeSettings:
    pool: str = "/AuroraBridge"  # path of the pool of jobs
    gpu_pool: str = "/GPUAuroraBridge"  # path of the pool of jobs that ask for gpus
    thermos: str = ""  # path or URL of the Thermos executor; empty: pods run without it
    thermos_flags: str = ""
    thermos_resources: tuple[str, ...] = ()  # files that are fetched with it
    thermos_cpu: float = 0.0  # of the executor itself
    thermos_memory_mib: int = 0
    in_place: bool = False  # whether updates prefer the hosts that instances were on
    pod_runs_depth: int = 6  # runs of each instance that getTasksWithoutConfigs returns
    tasks_max: int = 1_000  # tasks up to which it returns so many runs
    kafka_url: str = ""  # of a topic in a Kafka REST proxy; empty: events are not published


DEFAULTS = BridgeSettings()


def read_bridge_settings(settings: Settings) -> BridgeSettings:
    return BridgeSettings(
        pool=settings.aurora_pool,
        gpu_pool=settings.aurora_gpu_pool,
        thermos=settings.aurora_thermos,
        thermos_flags=settings.aurora_thermos_flags,
        thermos_resources=tuple(name for one in settings.aurora_thermos_resources.split(",") if (name := one.strip())),
        thermos_cpu=settings.aurora_thermos_cpu,
        thermos_memory_mib=settings.aurora_thermos_memory_mib,
        in_place=settings.aurora_in_place,
        pod_runs_depth=settings.aurora_pod_runs_depth,
        tasks_max=settings.aurora_tasks_max,
        kafka_url=settings.aurora_kafka_url,
    )
