"""From settings to the driver of a host manager's cluster: the only place that knows which drivers there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from peloton.errors import InvalidArgument
from peloton.ports import FrameworkRecords
from services.settings import Settings

if TYPE_CHECKING:
    from peloton.api.mesos_access import MesosAccess
    from services.hostmgr.driver import ClusterDriver
    from services.hostmgr.kubernetes.settings import KubernetesSettings


def cluster_driver_of(settings: Settings, records: FrameworkRecords) -> Callable[[], ClusterDriver]:
    """Makes the driver of this host manager's cluster. Raises InvalidArgument naming the setting."""
    if settings.kubernetes:
        from services.hostmgr.kubernetes.driver import KubernetesDriver

        kubernetes = _kubernetes_settings(settings)
        return lambda: KubernetesDriver(kubernetes)
    from services.hostmgr.mesos.driver import MesosDriver
    from services.hostmgr.mesos.framework import MesosSettings

    mesos = MesosSettings(
        settings.mesos,
        settings.cluster,
        settings.mesos_role,
        settings.mesos_user,
        settings.agents_period_s,
        mesos_access(settings),
        settings.agent_reregister_timeout_s,
        settings.offer_hold_s,
    )
    return lambda: MesosDriver(mesos, records)


def _kubernetes_settings(settings: Settings) -> KubernetesSettings:
    """Raises InvalidArgument naming the setting."""
    from services.hostmgr.kubernetes.settings import KubernetesSettings, read_node_selector, read_ports

    return KubernetesSettings(
        settings.kubernetes,
        settings.kubernetes_context,
        settings.cluster,
        settings.kubernetes_namespace,
        read_node_selector(settings.kubernetes_node_selector),
        settings.kubernetes_taint,
        settings.kubernetes_priority_class,
        settings.kubernetes_log_retention_s,
        settings.kubernetes_image_timeout_s,
        settings.kubernetes_lost_node_s,
        settings.kubernetes_default_image,
        read_ports(settings.kubernetes_ports),
    )


def mesos_access(settings: Settings) -> MesosAccess:
    """Raises InvalidArgument naming the setting."""
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
