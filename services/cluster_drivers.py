"""Cluster drivers made from the settings. No other module names the available drivers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from peloton.errors import InvalidArgument
from peloton.ports import FrameworkRecords, ImagePrefetcher, PodLifecycles
from services.settings import Settings

if TYPE_CHECKING:
    from peloton.api.mesos_access import MesosAccess
    from services.hostmgr.driver import ClusterDriver
    from services.hostmgr.external_adoption import ExternalAdoption, Why
    from services.hostmgr.kubernetes.settings import KubernetesSettings
    from services.storage.pods.external_pods import ExternalPods
    from services.storage.storage import Storage


def cluster_driver_of(
    settings: Settings, records: FrameworkRecords, external_pods: ExternalPods
) -> Callable[[], ClusterDriver]:
    """Makes the driver of this host manager's cluster. Raises InvalidArgument naming the setting."""
    if settings.kubernetes:
        from services.hostmgr.kubernetes.external.external_driver import ExternalPodsDriver

        kubernetes = _kubernetes_settings(settings)
        return lambda: ExternalPodsDriver(kubernetes, external_pods.uids_of)
    from services.hostmgr.mesos.driver import MesosDriver
    from services.hostmgr.mesos.framework import MesosSettings

    mesos = MesosSettings(
        settings.mesos,
        cluster=settings.cluster,
        role=settings.mesos_role,
        user=settings.mesos_user,
        agents_period_s=settings.agents_period_s,
        access=mesos_access(settings),
        agent_reregister_timeout_s=settings.agent_reregister_timeout_s,
        offer_hold_s=settings.offer_hold_s,
    )
    return lambda: MesosDriver(mesos, records)


def make_external_adoption(
    settings: Settings, storage: Storage, driver: ClusterDriver, lifecycles: PodLifecycles, why: Why
) -> ExternalAdoption | None:
    """Return the controller that adopts pods of other clients of the cluster, or None for a driver without such
    pods.
    """
    from services.hostmgr.external_adoption import ExternalAdoption
    from services.hostmgr.kubernetes.external.external_driver import ExternalPodsDriver

    if not isinstance(driver, ExternalPodsDriver):
        return None
    return ExternalAdoption(
        settings.cluster,
        driver.external,
        is_connected=lambda: driver.is_connected,
        pods=storage.external_pods,
        jobs=storage.jobs,
        pools=storage.pools,
        lifecycles=lifecycles,
        why=why,
        default_pool=settings.kubernetes_pool,
    )


def image_prefetcher_of(settings: Settings, driver: ClusterDriver, endpoint: ImagePrefetcher) -> ImagePrefetcher:
    """Return the prefetcher at the ``endpoint`` of the settings; without one a driver may prefetch images itself."""
    if settings.prefetch_url or not settings.kubernetes:
        return endpoint
    from services.hostmgr.kubernetes.driver import KubernetesDriver

    return driver.images if isinstance(driver, KubernetesDriver) else endpoint


def _kubernetes_settings(settings: Settings) -> KubernetesSettings:
    """Return the settings of the Kubernetes driver. Raises InvalidArgument naming the setting."""
    from services.hostmgr.kubernetes.settings import KubernetesSettings, read_node_selector, read_ports

    return KubernetesSettings(
        settings.kubernetes,
        context=settings.kubernetes_context,
        cluster=settings.cluster,
        namespace=settings.kubernetes_namespace,
        node_selector=read_node_selector(settings.kubernetes_node_selector),
        taint=settings.kubernetes_taint,
        priority_class=settings.kubernetes_priority_class,
        log_retention_s=settings.kubernetes_log_retention_s,
        image_timeout_s=settings.kubernetes_image_timeout_s,
        lost_node_s=settings.kubernetes_lost_node_s,
        slack_period_s=settings.kubernetes_slack_period_s,
        default_image=settings.kubernetes_default_image,
        ports=read_ports(settings.kubernetes_ports),
        volumes=settings.kubernetes_volumes,
    )


def mesos_access(settings: Settings) -> MesosAccess:
    """Return how to reach the Mesos master. Raises InvalidArgument naming the setting."""
    from peloton.api.mesos_access import TlsFiles, read_access

    scheme = settings.mesos.partition("://")[0] if "://" in settings.mesos else ""
    if scheme not in ("", "zk"):
        raise InvalidArgument(
            f"PELOTON_MESOS={settings.mesos}: want HOST:PORT or zk://HOSTS/PATH; for TLS set PELOTON_MESOS_TLS=true"
        )
    files = TlsFiles(
        settings.mesos_tls_ca_file, settings.mesos_tls_cert_file, settings.mesos_tls_key_file, settings.mesos_tls_names
    )
    return read_access(settings.mesos_principal, settings.mesos_secret_file, settings.mesos_tls, files)
