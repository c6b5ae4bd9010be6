"""Driver: PELOTON_MESOS=audit://HOST:PORT launches on that Mesos, and logs each pod with its host."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from peloton.model.ids import PodId
from peloton.ports import FrameworkRecords
from services.cluster_drivers import DRIVERS, Refusal, cluster_driver_of
from services.hostmgr.driver import ClusterDriver, HostLaunch
from services.settings import Settings
from services.storage.pods.external_pods import ExternalPods

log = logging.getLogger("audit")
SCHEME = "audit"


class AuditedDriver:
    """Passes everything on to another driver."""

    def __init__(self, driver: ClusterDriver) -> None:
        self._driver = driver

    def __getattr__(self, name: str) -> object:
        return getattr(self._driver, name)

    def launch(self, launches: Sequence[HostLaunch]) -> list[tuple[PodId, str]]:
        for claim, pods in launches:
            log.info("launch on %s: %s", claim.host_id, ", ".join(str(pod.pod_id) for pod in pods))
        return self._driver.launch(launches)


def make(settings: Settings, records: FrameworkRecords, external_pods: ExternalPods, refusal: Refusal) -> ClusterDriver:
    plain = replace(settings, mesos=settings.mesos.removeprefix(f"{SCHEME}://"))
    return cast(ClusterDriver, AuditedDriver(cluster_driver_of(plain, records, external_pods, refusal)()))


def register() -> None:
    DRIVERS[SCHEME] = make
