"""The table of settings, joined of its groups: each setting has its type, bounds, default, readers and help.
docs/settings.md is made of it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from peloton.errors import InvalidSettings
from services.setting_groups.addresses import AddressesSettings
from services.setting_groups.audit import AuditSettings
from services.setting_groups.aurora import AuroraSettings
from services.setting_groups.backlog import BacklogSettings
from services.setting_groups.host_pools import HostPoolsSettings
from services.setting_groups.hosts import HostsSettings
from services.setting_groups.kubernetes import KubernetesSettings
from services.setting_groups.leadership import LeadershipSettings
from services.setting_groups.mesos import MesosSettings
from services.setting_groups.retention import RetentionSettings
from services.setting_groups.scheduling import SchedulingSettings
from services.setting_groups.secrets import SecretsSettings
from services.setting_groups.security import SecuritySettings
from services.setting_groups.sign_in import SignInSettings
from services.setting_groups.stores import StoresSettings
from services.setting_groups.telemetry import TelemetrySettings
from services.setting_groups.transport import TransportSettings
from services.setting_groups.workers import WorkersSettings
from services.setting_rules import (
    DATABASE_URL,
    Together,
    is_ascending,
    is_ascending_or_off,
    is_less,
    setting_of,
)


@dataclass(frozen=True)
class Settings(
    SignInSettings,
    SecuritySettings,
    AuditSettings,
    TelemetrySettings,
    TransportSettings,
    RetentionSettings,
    AuroraSettings,
    WorkersSettings,
    BacklogSettings,
    LeadershipSettings,
    SchedulingSettings,
    HostPoolsSettings,
    HostsSettings,
    KubernetesSettings,
    MesosSettings,
    SecretsSettings,
    AddressesSettings,
    StoresSettings,
):
    """Settings of a process. The environment variable of a field is PELOTON_ and its name in capitals. The fields of
    the last group come first.
    """

    def require_database(self) -> str:
        """Return the address of the database. Raises InvalidSettings without one: a role on a database of its own would
        share no state with the others.
        """
        if not self.database:
            raise InvalidSettings(f"PELOTON_DATABASE is not set: want {DATABASE_URL.wanted}")
        return self.database

    @property
    def advertised(self) -> str:
        return self.advertise or self.host


SETTINGS = {spec.name: setting_of(spec) for spec in fields(Settings)}

_KEPT_LONGER = "the first no more than the second, or one of them 0"
TOGETHER = (
    Together(("qos_target_percent", "qos_hot_percent"), is_less, "the first less than the second"),
    Together(("advisor_orange_percent", "advisor_red_percent"), is_ascending, "the first no more than the second"),
    Together(
        ("p95_orange_ms", "p95_red_ms"), is_ascending_or_off, "the first no more than the second, or one of them 0"
    ),
    Together(
        ("p99_orange_ms", "p99_red_ms"), is_ascending_or_off, "the first no more than the second, or one of them 0"
    ),
    Together(
        ("history_period_s",), lambda s: not s or 60 % s == 0, "0, or seconds that divide a minute, such as 60 or 15"
    ),
    *(
        Together((f"retention_{shorter}_days", f"retention_{longer}_days"), is_ascending_or_off, _KEPT_LONGER)
        for shorter, longer in (("pod_events", "pods"), ("pods", "jobs"), ("pod_events", "jobs"))
    ),
    Together(("retry_wait_s", "retry_wait_max_s"), is_ascending, "the first no more than the second"),
    Together(("mover_target_percent", "mover_high_percent"), is_less, "the first less than the second"),
    Together(("mover_take_after_urgent_s", "mover_take_after_s"), is_ascending, "the first no more than the second"),
    Together(("mover_return_after_s", "mover_return_after_max_s"), is_ascending, "the first no more than the second"),
    Together(
        ("tls_cert_file", "tls_ca_file"),
        lambda cert, ca: bool(cert) == bool(ca),
        "both, or none of them for plain text",
    ),
    Together(
        ("auth_oidc_issuer", "auth_oidc_audience"), lambda issuer, name: bool(issuer) == bool(name), "both or none"
    ),
    Together(("tls_cert_file", "tls_key_file"), lambda cert, key: bool(cert) or not key, "the first for the second"),
    Together(("mover_hosts_at_a_time", "mover_hosts_per_hour"), is_ascending, "the first no more than the second"),
)
