"""Checks of the settings of roles that need more than the table: files, and the rules of a cluster's driver."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from peloton.api.mesos_access import MesosAccess, TlsFiles, read_access
from peloton.errors import InvalidArgument, InvalidSettings
from peloton.files import read_text_file
from services.setting_groups.transport import REQUIRED
from services.setting_rules import PREFIX, ROLES
from services.settings import DEFAULT, Found, Settings, find
from services.settings_table import SETTINGS

if TYPE_CHECKING:
    from services.election.zookeeper import Access
    from services.hostmgr.kubernetes.settings import KubernetesSettings

SERVING = frozenset(ROLES) - {"worker"}
"""The roles that listen on a port."""
FOR_CLIENTS = frozenset({"api", "web", "aurorabridge"})
DIGEST_CHARS_MAX = 1_000
ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104, refused


def load_for(roles: Collection[str], environment: Mapping[str, str] = os.environ, config: str = "") -> Settings:
    """Read the settings and check them for the roles. Raises InvalidSettings with the sources of the values."""
    return check_found(find(environment, config), roles)


def check_found(found: Mapping[str, Found], roles: Collection[str]) -> Settings:
    """Return the settings after their check for the roles. Raises InvalidSettings with the sources of the values."""
    settings = Settings(**{name: one.value for name, one in found.items()})
    try:
        check(settings, roles)
    except InvalidArgument as error:
        named = re.findall(rf"{PREFIX}[A-Z0-9_]+", error.message)
        given = [found[name] for name, one in SETTINGS.items() if one.variable in named]
        sources = ", ".join(f"{one.label}: {one.source}" for one in given if one.source != DEFAULT)
        raise InvalidSettings(f"{error.message} ({sources})" if sources else error.message) from None
    return settings


def check(settings: Settings, roles: Collection[str]) -> None:
    """Raise InvalidArgument when one of the roles could not run with the settings. Nothing is started or connected."""
    if set(roles) - {"web", "aurorabridge"}:
        settings.require_database()
    dialled = {"resmgr", "hostmgr", *(["aurorabridge"] if settings.aurora_zookeeper else ())} & set(roles)
    if settings.host in ANY_ADDRESS and not settings.advertise and dialled:
        raise InvalidSettings(
            f"{PREFIX}ADVERTISE must be set for role {min(dialled)}: {PREFIX}HOST={settings.host} is no address that "
            f"others can connect to; want the name of this host"
        )
    check_exposure(settings, roles)
    check_metrics_exposure(settings)
    read_zookeeper(settings)
    manages_hosts = "hostmgr" in roles
    if manages_hosts and settings.kubernetes:
        read_kubernetes_settings(settings)
    if "web" in roles or (manages_hosts and not settings.kubernetes):
        read_mesos_access(settings)


def check_exposure(settings: Settings, roles: Collection[str]) -> None:
    """Raise InvalidSettings when a role would serve other machines without TLS, or clients without credentials."""
    serving = sorted(SERVING & set(roles))
    if settings.insecure or not serving or is_loopback(settings.host):
        return
    where = f"other machines reach {PREFIX}HOST={settings.host}"
    escape = f"or {PREFIX}INSECURE=true in a network whose every client is trusted"
    if not settings.tls_cert_file:
        raise InvalidSettings(
            f"{PREFIX}TLS_CERT_FILE must be set for role {serving[0]}: {where}; want a certificate, {escape}"
        )
    asking = ({"api"} if asks_for_tokens(settings) else set()) | ({"web"} if signs_viewers_in(settings) else set())
    open_to_all = FOR_CLIENTS & set(serving) - asking
    if open_to_all and not authenticates_clients(settings):
        raise InvalidSettings(
            f"{PREFIX}TLS_CLIENTS={settings.tls_clients} leaves role {min(open_to_all)} without "
            f"credentials of clients: {where}; want {PREFIX}TLS_CLIENTS={REQUIRED}, a file of tokens or users, "
            f"an issuer, {escape}"
        )


def check_metrics_exposure(settings: Settings) -> None:
    """Raise InvalidSettings when other machines would read the metrics without TLS."""
    if settings.insecure or not settings.metrics_port or is_loopback(settings.metrics_host) or settings.tls_cert_file:
        return
    raise InvalidSettings(
        f"{PREFIX}TLS_CERT_FILE must be set for {PREFIX}METRICS_HOST={settings.metrics_host}, which other machines "
        f"reach; want a certificate, or {PREFIX}INSECURE=true in a network where all clients are trusted"
    )


def authenticates_clients(settings: Settings) -> bool:
    """Return whether clients must prove who they are."""
    return settings.tls_clients == REQUIRED


def asks_for_tokens(settings: Settings) -> bool:
    """Return whether the api asks clients without a certificate for other credentials."""
    proves = settings.auth_tokens_file or settings.auth_basic_file or settings.auth_oidc_issuer
    return bool(proves) and settings.auth_anonymous in ("", "none")


def signs_viewers_in(settings: Settings) -> bool:
    """Return whether the pages have an issuer at which viewers sign in; without it they may paste tokens."""
    return bool(settings.auth_oidc_issuer)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches the address; a name other than localhost may be any address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def read_mesos_access(settings: Settings) -> MesosAccess:
    """Read the access to the Mesos master and its agents. Raises InvalidArgument naming the setting."""
    files = TlsFiles(
        settings.mesos_tls_ca_file, settings.mesos_tls_cert_file, settings.mesos_tls_key_file, settings.mesos_tls_names
    )
    return read_access(settings.mesos_principal, settings.mesos_secret_file, settings.mesos_tls, files)


def read_zookeeper(settings: Settings) -> Access | None:
    """Read the access to the ZooKeeper of elections; None without one. Raises InvalidArgument naming the setting."""
    if settings.election != "zookeeper":
        return None
    if not settings.zookeeper:
        raise InvalidSettings(f"{PREFIX}ZOOKEEPER must be set, since {PREFIX}ELECTION is zookeeper")
    from services.election.zookeeper import Access

    hosts, _, path = settings.zookeeper.removeprefix("zk://").partition("/")
    digest = ""
    if settings.zookeeper_auth_file:
        digest = _read_digest(settings.zookeeper_auth_file)
    return Access(
        hosts,
        f"/{path}",
        digest=digest,
        tls=settings.zookeeper_tls,
        ca_file=settings.zookeeper_tls_ca_file,
        cert_file=settings.zookeeper_tls_cert_file,
        key_file=settings.zookeeper_tls_key_file,
    )


def _read_digest(path: str) -> str:
    try:
        digest = read_text_file(path, "file").rstrip("\r\n")
    except (OSError, InvalidArgument) as error:
        raise InvalidSettings(f"{PREFIX}ZOOKEEPER_AUTH_FILE: {error}") from error
    if not re.fullmatch(r"[^:\s]+:\S+", digest) or len(digest) > DIGEST_CHARS_MAX:
        raise InvalidSettings(
            f"{PREFIX}ZOOKEEPER_AUTH_FILE {path}: want user:password in one line, at most {DIGEST_CHARS_MAX} characters"
        )
    return digest


def read_kubernetes_settings(settings: Settings) -> KubernetesSettings:
    """Read the settings of the Kubernetes driver. Raises InvalidArgument naming the setting."""
    from services.hostmgr.kubernetes.settings import KubernetesSettings, read_node_selector, read_ports, read_taints

    return KubernetesSettings(
        settings.kubernetes,
        context=settings.kubernetes_context,
        cluster=settings.cluster,
        namespace=settings.kubernetes_namespace,
        node_selector=read_node_selector(settings.kubernetes_node_selector),
        taint=settings.kubernetes_taint,
        taints_used=read_taints(settings.kubernetes_taints_used),
        priority_class=settings.kubernetes_priority_class,
        log_retention_s=settings.kubernetes_log_retention_s,
        image_timeout_s=settings.kubernetes_image_timeout_s,
        lost_node_s=settings.kubernetes_lost_node_s,
        slack_period_s=settings.kubernetes_slack_period_s,
        default_image=settings.kubernetes_default_image,
        ports=read_ports(settings.kubernetes_ports),
        admission_timeout_s=settings.kubernetes_admission_timeout_s,
        gang_services=settings.kubernetes_gang_services,
        volumes=settings.kubernetes_volumes,
        owner_kinds=settings.kubernetes_owner_kinds,
    )
