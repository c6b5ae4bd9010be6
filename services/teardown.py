"""``python -m services.teardown``: removes the framework of PELOTON_CLUSTER from Mesos, with all of its pods.

Use it when an installation of Peloton is removed permanently: otherwise Mesos keeps the framework and its pods for
seven days. It has the settings of the host manager, which must have been stopped.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from peloton.errors import PelotonError, Unavailable
from peloton.model.ids import hostmgr_role
from services.hostmgr.mesos.framework import MesosSettings, framework_info
from services.hostmgr.mesos.subscription import Callbacks, Subscription
from services.role_settings import read_mesos_access
from services.settings import Settings, load
from services.storage.leases import Leases
from services.storage.storage import Storage

TIMEOUT_S = 20.0
POLL_EVERY_S = 0.2


class _Subscriber(Callbacks):
    """Waits for a subscription, or for the reason of its failure. Offers and updates are ignored."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.failure = ""

    def registered(self, *_: Any) -> None:
        self.done.set()

    reregistered = registered

    def denied(self, driver: Subscription, why: str) -> None:
        self.failure = why
        self.done.set()

    def error(self, driver: Subscription, message: str) -> None:
        self.denied(driver, message)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *_: None


def tear_down(settings: Settings) -> str:
    """Remove the framework; return a sentence on the result. Raises PelotonError, and storage's errors."""
    storage = Storage(settings.require_database())
    try:
        framework_id = storage.hosts.framework_id(settings.cluster)
        if not framework_id:
            return f"cluster {settings.cluster} has no framework"
        _await_end_of_leader(storage.leases, settings.cluster)
    finally:
        storage.close()
    access = read_mesos_access(settings)
    mesos_settings = MesosSettings(
        settings.mesos, cluster=settings.cluster, role=settings.mesos_role, user=settings.mesos_user, access=access
    )
    subscriber = _Subscriber()
    driver = Subscription(subscriber, framework_info(mesos_settings, framework_id), settings.mesos, access)
    driver.start()
    try:
        if not subscriber.done.wait(TIMEOUT_S):
            raise Unavailable(f"Mesos at {settings.mesos} did not answer in {TIMEOUT_S:.0f} s")
        if subscriber.failure:
            raise Unavailable(f"Mesos master {driver.master} refuses framework {framework_id}: {subscriber.failure}")
        if refusal := driver.send_all([{"type": "TEARDOWN"}])[0]:
            raise Unavailable(f"Mesos master {driver.master} does not tear down framework {framework_id}: {refusal}")
    finally:
        driver.stop()
        driver.join()
    return f"framework {framework_id} is torn down"


def _await_end_of_leader(leases: Leases, cluster: str) -> None:
    """Wait until no host manager leads: the lease of a killed one lasts a few seconds."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while leader := leases.leader(hostmgr_role(cluster), time.time()):
        if time.monotonic() > deadline_s:
            raise Unavailable(f"the host manager of cluster {cluster} leads at {leader}: stop it first")
        time.sleep(POLL_EVERY_S)


def main() -> None:
    try:
        print(tear_down(load()), flush=True)
    except (PelotonError, OSError) as error:
        sys.exit(f"not torn down: {error}")


if __name__ == "__main__":
    main()
