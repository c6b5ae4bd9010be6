"""Cluster drivers made from the settings. No other module names the available drivers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from peloton.extras import require_pymesos
from peloton.ports import FrameworkRecords, ImagePrefetcher, PodLifecycles
from services.role_settings import read_kubernetes_settings, read_mesos_access
from services.settings import Settings

if TYPE_CHECKING:
    from services.audit.changes import ChangeRecords
    from services.hostmgr.driver import ClusterDriver
    from services.hostmgr.external_adoption import ExternalAdoption, Why
    from services.hostmgr.kubernetes.pools.pool_controller import PoolApi, PoolController
    from services.storage.pods.external_pods import ExternalPods
    from services.storage.storage import Storage

Refusal = Callable[[], str]
"""Returns why the host manager may not send now, such as another leader; empty: it may."""
DRIVERS: dict[str, Callable[[Settings, FrameworkRecords, ExternalPods, Refusal], ClusterDriver]] = {}
"""Drivers of plugins, by the scheme of the address in PELOTON_MESOS."""


def cluster_driver_of(
    settings: Settings, records: FrameworkRecords, external_pods: ExternalPods, refusal: Refusal
) -> Callable[[], ClusterDriver]:
    """Make the driver of this host manager's cluster, which asks ``refusal`` before it sends why it may not, or "".
    Raises InvalidArgument naming the setting, and Unimplemented."""
    scheme, separator, _ = settings.mesos.partition("://")
    if separator and scheme in DRIVERS:
        from services.hostmgr.fenced_driver import fence_driver

        make = DRIVERS[scheme]
        return lambda: fence_driver(make(settings, records, external_pods, refusal), refusal)
    if settings.kubernetes:
        from services.hostmgr.kubernetes.external.external_driver import ExternalPodsDriver
        from services.hostmgr.kubernetes.suspend.kinds_file import read_kinds

        kubernetes = read_kubernetes_settings(settings)
        read_kinds(kubernetes.owner_kinds)  # a bad file ends the start, and not the first election
        return lambda: ExternalPodsDriver(kubernetes, external_pods.uids_of, external_pods.causes_of, refusal)
    require_pymesos("the host manager of a Mesos cluster")
    from services.hostmgr.mesos.driver import MesosDriver
    from services.hostmgr.mesos.framework import MesosSettings

    mesos = MesosSettings(
        settings.mesos,
        cluster=settings.cluster,
        role=settings.mesos_role,
        user=settings.mesos_user,
        agents_period_s=settings.agents_period_s,
        access=read_mesos_access(settings),
        agent_reregister_timeout_s=settings.agent_reregister_timeout_s,
        offer_hold_s=settings.offer_hold_s,
    )
    return lambda: MesosDriver(mesos, records, refusal)


def make_external_adoption(
    settings: Settings,
    storage: Storage,
    driver: ClusterDriver,
    lifecycles: PodLifecycles,
    why: Why,
    unsettled: Callable[[], None],
) -> ExternalAdoption | None:
    """Return the controller that adopts pods of other clients of the cluster, or None for a driver without such
    pods. ``unsettled`` is called when it is unknown whether pods were launched.
    """
    from services.hostmgr.ahead_admission import AheadAdmission
    from services.hostmgr.external_adoption import ExternalAdoption

    if driver.capabilities.external_pods is None:
        return None
    return ExternalAdoption(
        settings.cluster,
        driver.capabilities.external_pods,
        is_connected=lambda: driver.is_connected,
        pods=storage.external_pods,
        jobs=storage.jobs,
        pools=storage.pools,
        lifecycles=lifecycles,
        why=why,
        default_pool=settings.kubernetes_pool,
        ahead=AheadAdmission(
            settings.cluster,
            settings.kubernetes_admit_ahead,
            cluster=driver.capabilities.external_pods,
            pods=storage.pods,
            host_pods=storage.host_pods,
            lifecycles=lifecycles,
            unsettled=unsettled,
        ),
    )


def make_pool_controller(settings: Settings, pools: PoolApi, audit: ChangeRecords) -> PoolController | None:
    """Return the controller of objects of pools in this host manager's cluster, or None where they are not in use."""
    if not (settings.kubernetes and settings.kubernetes_pool_objects):
        return None
    from services.audit.compose import make_change_notes
    from services.hostmgr.kubernetes.apiserver.access import read_access
    from services.hostmgr.kubernetes.apiserver.wire import ApiServer
    from services.hostmgr.kubernetes.pools.pool_controller import PoolController

    api = ApiServer(read_access(settings.kubernetes, settings.kubernetes_context))
    return PoolController(api, pools, make_change_notes(settings, audit, f"kubernetes/{settings.cluster}"))


def image_prefetcher_of(settings: Settings, driver: ClusterDriver, endpoint: ImagePrefetcher) -> ImagePrefetcher:
    """Return the prefetcher at the ``endpoint`` of the settings; without one that of the cluster, if it has one."""
    own = None if settings.prefetch_url else driver.capabilities.images
    return own or endpoint
