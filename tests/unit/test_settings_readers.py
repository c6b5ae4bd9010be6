"""The readers in the table of settings are the roles whose code reads them."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from services.setting_rules import CLI, ROLES
from services.settings_table import SETTINGS

SERVICES = Path(__file__).resolve().parents[2] / "services"
SERVERS = {"api", "worker", "resmgr", "hostmgr"}
AGENTS = {"hostmgr", "web", CLI}
READERS = {
    "access/compose.py": {"api"},
    "audit/compose.py:make_recorder": {"api"},
    "audit/compose.py:make_change_notes": {"hostmgr"},
    "aurorabridge/server.py": {"aurorabridge"},
    "aurorabridge/settings.py": {"aurorabridge"},
    "cluster_drivers.py": {"hostmgr"},
    "host_monitors.py": {"hostmgr"},
    "processes.py:_read_of_all": SERVERS,
    "processes.py:_read_of_apis": {"api"},
    "processes.py:_read_of_bridges": {"aurorabridge"},
    "processes.py:_read_of_pages": {"web"},
    "resmgr/settings.py": {"resmgr"},
    "telemetry/start.py:configure": {*ROLES},
    "telemetry/start.py:_cluster": {"hostmgr"},
    "telemetry/start.py:_make_otlp_reader": {*ROLES},
    "telemetry/start.py:_export_metrics": {*ROLES},
    "telemetry/start.py:_export_traces": SERVERS,
    "retention/archive.py": {"resmgr", CLI},
    "retention/composition.py": {"resmgr"},
    "web/server.py": {"web"},
    "role_settings.py:read_mesos_access": AGENTS,
    "role_settings.py:read_kubernetes_settings": {"hostmgr"},
    "role_settings.py:read_zookeeper": SERVERS,
    "role_settings.py:check_exposure": {"api", "resmgr", "hostmgr", "web", "aurorabridge"},
    "role_settings.py:check_metrics_exposure": {*ROLES},
    "role_settings.py:authenticates_clients": {*ROLES},
    "role_settings.py:asks_for_tokens": {"api"},
    "role_settings.py:signs_viewers_in": {"web"},
    "runtime.py:_run": {*SERVERS, "web", "aurorabridge"},
    "runtime.py:_run_roles": SERVERS,
    "runtime.py:_policies_of": SERVERS,
    "secrets/stores.py": SERVERS,
    "roles/api.py": {"api"},
    "roles/worker.py": {"worker"},
    "roles/resmgr.py": {"resmgr"},
    "roles/hostmgr.py": {"hostmgr"},
    "roles/shared.py:bounds_of": {"api", "worker"},
    "roles/shared.py:quotas_of": {"api", "worker"},
    "roles/shared.py:lead_role": {"resmgr", "hostmgr"},
    "roles/shared.py:as_candidate": {"resmgr", "hostmgr"},
    "roles/shared.py:sdk_metrics_address": SERVERS,
    "roles/shared.py:opening_wakers": {"api", "resmgr", "hostmgr"},
    "tls/settings.py": {*ROLES},
    "tls/exporter.py": {*ROLES},
    "settings_table.py:require_database": SERVERS,
    "settings_table.py:advertised": {"resmgr", "hostmgr", "aurorabridge"},
}
"""The roles that run a function, or all functions of a module."""
ELSEWHERE = {"role_settings.py:check", "teardown.py:tear_down"}


def read_settings(path: Path) -> Iterator[tuple[str, str]]:
    """Return the functions of a module, each with the settings that it reads."""
    module = ast.parse(path.read_text(encoding="utf-8"))
    members = [member for one in module.body if isinstance(one, ast.ClassDef) for member in one.body]
    for function in [*module.body, *members]:
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        owner = "self" if path.name == "settings_table.py" else "settings"
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute) and node.attr in SETTINGS:
                of = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
                if of == owner:
                    yield function.name, node.attr


def test_readers_are_those_of_the_code() -> None:
    """Each setting is read by the roles that the table names, and by no other."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    modules = [SERVICES / name for name in {place.split(":")[0] for place in READERS} | {"teardown.py"}]
    for path in modules:
        module = path.relative_to(SERVICES).as_posix()
        for function, name in read_settings(path):
            place = f"{module}:{function}"
            if place not in ELSEWHERE:
                found[name] |= READERS.get(module) or READERS[place]

    assert {name: set(setting.rule.readers) for name, setting in SETTINGS.items()} == found
