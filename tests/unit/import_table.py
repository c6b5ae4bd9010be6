"""The table of allowed imports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class May:
    """Allowed imports of a package: own modules by prefix (itself always), and third parties by top-level name."""

    ours: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


_INSIDE = ("peloton.model", "peloton.errors", "peloton.files", "peloton.lifecycle", "peloton.ports", "peloton.api")
_REPOSITORIES = (
    "storage activity_reports admission.admission bulk_reads daemons.daemons history.history hosts.host_pools "
    "hosts.hosts hosts.maintenance hosts.mover jobs.configs jobs.job_streams jobs.job_table jobs.jobs jobs.search "
    "jobs.secrets leases lockdowns moves.migrations moves.rebalances pods.external_pods pods.host_pods pods.pods "
    "pods.status_writes pools restored processes updates.disruptions updates.updates volumes.volumes watch_log "
    "overview diagnosis creators ended_sessions"
)
_STORED = tuple(f"services.storage.{name}" for name in _REPOSITORIES.split())
_CHOOSES_HOSTS = (
    "advice bin_packing capacity clusters columns departures fit fleet host_pools placement qos rebalance relocation "
    "rows spreading tree trial"
)
_QUEUES = "services.temporal.task_queues"
_LABELS = "services.temporal.workflow_labels"
_FLEET = "services.temporal.worker_fleet"
_HANDLERS = "services.servers.grpc_handlers"
_LISTENER = "services.servers.bounded_listener"
_HOSTMGR = ("services.hostmgr", "services.settings", "services.storage")
_SERVES = (
    "services.servers.grpc_bounds",
    "services.servers.grpc_errors",
    _HANDLERS,
    "services.servers.grpc_requests",
    "services.servers.grpc_status",
    "services.servers.role_surface",
    "services.telemetry.calls",
    "services.tls.transport",
)
_MEASURES = tuple(f"services.telemetry.{name}" for name in ("log_context", "metrics", "state", "traces"))
_GRPC = ("peloton.api.limits", "peloton.errors", "services.servers.grpc_errors", _HANDLERS)
_WAKES = May(
    (
        *_MEASURES,
        "peloton.model",
        "services.wakers.job_rollup",
        "services.wakers.job_waker",
        "services.wakers.lifecycles",
        "services.storage.storage",
        "services.temporal.connection",
        "services.wakers.wake_line",
        "services.wakers.waker",
        _LABELS,
        "workflows.policies",
    ),
    ("temporalio",),
)
_READS_FILES = ("peloton.errors", "peloton.files")
_CLI = (
    "peloton.api",
    "peloton.client",
    "peloton.model",
    "peloton.errors",
    "peloton.files",
    "peloton.issuer",
    "peloton.release",
    "cli",
)
_SETTINGS = (
    "services.other_variables",
    "services.role_settings",
    "services.setting_rules",
    "services.settings",
    "services.settings_table",
)
_CLI_OTHERS = ("click", "google", "grpc", "rich", "yaml")

_MINICLUSTER = tuple(
    f"services.lab.mesos.{name}" for name in ("http", "identifiers", "model", "nanoseconds", "resources", "settings")
)

# The longest prefix of a module's name decides. An arrow that is not here is never drawn: see docs/architecture.md.
MAY: dict[str, May] = {
    # The inside: it only thinks.
    "peloton.model": May(),
    "peloton.errors": May(),
    "peloton.extras": May(("peloton.errors",)),
    "peloton.ports": May(("peloton.model",)),
    "peloton.files": May(("peloton.errors", "peloton.model.text")),
    "peloton.release": May(),
    "peloton.issuer": May(("peloton.errors", "peloton.files", "peloton.model.text")),
    "peloton.deployment": May(("peloton.errors",)),
    "peloton.lifecycle": May(("peloton.model",)),
    "peloton.access": May(("peloton.model",)),
    "peloton.scheduling": May(("peloton.model", "peloton.lifecycle"), ("numpy",)),
    "peloton.hosts": May(("peloton.errors", "peloton.lifecycle", "peloton.model", "peloton.scheduling")),
    "peloton.client": May(
        ("peloton.api", *_READS_FILES, "peloton.issuer", "peloton.model"), ("google", "grpc", "yaml")
    ),
    "peloton.integrations": May(
        ("peloton.api", "peloton.client", "peloton.errors", "peloton.extras", "peloton.model"),
        ("cloudpickle", "google", "grpc"),
    ),
    "peloton.integrations.airflow": May(("peloton.client", "peloton.errors", "peloton.extras"), ("airflow", "grpc")),
    "peloton.integrations.airflow_executor": May(
        ("peloton.api", "peloton.client", "peloton.errors", "peloton.extras", "peloton.model"), ("airflow", "grpc")
    ),
    "peloton.integrations.dask": May(
        ("peloton.client", "peloton.errors", "peloton.extras", "peloton.integrations.instances"),
        ("distributed", "grpc", "tornado"),
    ),
    "peloton.integrations.dask_worker": May((), ("distributed",)),
    "peloton.integrations.prefect": May(
        ("peloton.api", "peloton.client", "peloton.errors", "peloton.extras", "peloton.integrations.instances"),
        ("anyio", "grpc", "httpx", "prefect", "pydantic"),
    ),
    "peloton.integrations.ray": May(
        ("peloton.api", "peloton.client", "peloton.errors", "peloton.extras", "peloton.integrations.instances"),
        ("ray",),
    ),
    "peloton.integrations.joblib": May(("peloton.extras", "peloton.integrations.futures"), ("joblib",)),
    "peloton.integrations.spark_submit": May(("peloton.integrations.spark",)),
    "peloton.integrations.spark": May(),
    "peloton.api": May(("peloton.model", "peloton.errors", "peloton.files"), ("google", "grpc", "grpc_tools", "yaml")),
    "peloton.integrations.launch_agent": May(
        ("peloton.api", "peloton.client", "peloton.files", "peloton.integrations.futures_worker")
    ),
    # The shell, driven by Temporal.
    "workflows": May(("peloton.model", "peloton.errors", "peloton.lifecycle", "activities"), ("temporalio",)),
    "activities": May(("peloton.model", "peloton.errors", "peloton.lifecycle", "peloton.ports"), ("temporalio",)),
    # The shell, in processes. A service reaches another one through its client, and storage through its repositories.
    "services.setting_rules": May(("peloton.model.ids",)),
    "services.setting_groups": May(("services.setting_rules",)),
    "services.settings_table": May(("peloton.errors", "services.setting_groups", "services.setting_rules")),
    "services.other_variables": May(("services.setting_rules",)),
    "services.settings_page": May(("services.other_variables", "services.setting_rules", "services.settings_table")),
    "services.settings": May(
        (*_READS_FILES, "services.other_variables", "services.setting_rules", "services.settings_table")
    ),
    "services.role_settings": May(
        (
            "peloton.api.mesos_access",
            *_READS_FILES,
            "services.hostmgr.kubernetes.settings",
            "services.setting_groups.transport",
            "services.setting_rules",
            "services.settings",
            "services.settings_table",
            "services.election.zookeeper",
        )
    ),
    "services.servers.grpc_errors": May(
        (
            *_MEASURES,
            "peloton.api.error_details",
            "peloton.api.limits",
            "peloton.errors",
            "peloton.model.text",
            "peloton.ports",
        ),
        ("grpc",),
    ),
    "services.tls": May(
        (
            "peloton.api.channels",
            "peloton.api.tls_files",
            "peloton.extras",
            *("services.access.files", "services.access.role_token"),
            "services.setting_groups",
            "services.setting_rules",
            "services.settings",
            *_READS_FILES,
        ),
        ("cryptography", "grpc"),
    ),
    "services.servers.grpc_handlers": May((), ("grpc",)),
    "services.servers.grpc_bounds": May(("peloton.errors", _HANDLERS), ("grpc",)),
    "services.servers.role_surface": May((_HANDLERS, "services.tls.transport"), ("grpc",)),
    "services.servers.grpc_status": May(_GRPC, ("grpc",)),
    "services.servers.grpc_requests": May(
        (*_GRPC, "peloton.api.wire_faults", "peloton.ports", "services.access.caller", "services.servers.grpc_bounds"),
        ("google", "grpc"),
    ),
    "services.leader": May(
        (
            "peloton.api.limits",
            "peloton.errors",
            "services.servers.role_surface",
            "services.tls.transport",
            "services.election.port",
        ),
        ("grpc",),
    ),
    "services.election": May(
        (*_MEASURES, "peloton.errors", "peloton.model.ids", "peloton.ports", "services.fence"), ("kazoo", "orjson")
    ),
    "services.fence": May(("peloton.errors",)),
    "services.plugins": May(("peloton.errors",)),
    "services.leading": May((*_MEASURES, "peloton.errors", "services.election.port"), ("opentelemetry",)),
    "services.log_lines": May(("peloton.model.text",)),
    "services.telemetry": May(
        (
            *("peloton.errors", "peloton.model.text", "services.servers.bounded_http", "services.log_lines"),
            *("services.settings", "services.tls"),
        ),
        ("opentelemetry",),
    ),
    "services.telemetry.workflow_traces": May((), ("opentelemetry", "temporalio")),
    "services.telemetry.start": May(
        ("services.role_settings", "services.settings", "services.telemetry", "services.tls"), ("opentelemetry",)
    ),
    "services.telemetry.calls": May((_HANDLERS, "services.telemetry"), ("grpc",)),
    "services.rested": May(),
    "services.servers.bounded_http": May(),
    "services.ticks": May(("peloton.lifecycle.liveness",)),
    "services.health_file": May(("peloton.files",)),
    "services.healthcheck": May(("services.health_file",)),
    "services.health": May(("peloton.lifecycle.liveness", "services.health_file", "services.ticks")),
    "services.recheck": May(),
    "services.temporal.payloads": May(("peloton.model",), ("temporalio",)),
    "services.temporal.task_queues": May(("peloton.model", "workflows.attributes"), ("temporalio",)),
    "services.wakers.lifecycles": May(
        ("peloton.model", "services.storage.storage", _QUEUES, _LABELS, "workflows"),
        ("temporalio",),
    ),
    "services.wakers.wake_line": May(),
    "services.wakers.waker": May(
        (
            *_MEASURES,
            "peloton.lifecycle.backoff",
            "peloton.model",
            "services.wakers.failed_workflows",
            "services.wakers.lifecycles",
            "services.storage.storage",
            _QUEUES,
            "services.temporal.connection",
            "services.wakers.wake_line",
            "workflows.policies",
        ),
        ("opentelemetry", "temporalio"),
    ),
    "services.wakers.job_rollup": May(("peloton.model", "services.wakers.job_waker")),
    "services.wakers.job_waker": _WAKES,
    "services.wakers.wakers": _WAKES,
    "services.temporal.watch": May(
        (
            "peloton.errors",
            "peloton.lifecycle",
            "peloton.model",
            "services.wakers.failed_workflows",
            "services.temporal.payloads",
            _QUEUES,
            _FLEET,
            "workflows",
        ),
        ("temporalio",),
    ),
    "services.wakers.failed_workflows": May(
        ("peloton.lifecycle", "peloton.model", _QUEUES, _LABELS, "workflows.attributes"),
        ("temporalio",),
    ),
    "services.schedules": May(
        (
            "peloton.api.v0.job",
            "peloton.errors",
            "peloton.lifecycle",
            "peloton.model",
            _QUEUES,
            _LABELS,
            "workflows",
        ),
        ("google", "temporalio"),
    ),
    "services.temporal.workflow_labels": May(
        ("peloton.model", "workflows.attributes", "workflows.policies"), ("temporalio",)
    ),
    "services.wakers.workflow_restarter": May(
        (
            "peloton.lifecycle.liveness",
            "services.wakers.failed_workflows",
            "services.wakers.missing_workflows",
            "services.recheck",
            _QUEUES,
            "services.ticks",
            "services.wakers.wakers",
        ),
        ("temporalio",),
    ),
    "services.wakers.sweep": May((*_MEASURES, "peloton.model", "services.ticks")),
    "services.wakers.missing_workflows": May(("peloton.model", _QUEUES), ("temporalio",)),
    "services.temporal.worker_fleet": May(
        ("peloton.lifecycle", "services.temporal.payloads", _QUEUES, "services.temporal.connection"),
        ("google", "temporalio"),
    ),
    "services.temporal.worker_versions": May(
        ("peloton.lifecycle", "services.recheck", _QUEUES, "services.ticks", _FLEET),
        ("google", "temporalio"),
    ),
    "services.temporal.worker_admin": May(("peloton.errors", "peloton.lifecycle", _FLEET), ("temporalio",)),
    "services.temporal.connection": May(
        (
            *_MEASURES,
            "peloton.errors",
            "peloton.model.job",
            "services.temporal.payloads",
            "services.telemetry.logs",
            "services.telemetry.workflow_traces",
            "services.temporal.renewal",
        ),
        ("temporalio",),
    ),
    "services.temporal.renewal": May(("peloton.errors", "services.ticks"), ("google", "temporalio")),
    "services.secrets": May(
        (
            *("peloton.errors", "peloton.extras", "peloton.files", "peloton.model", "peloton.ports"),
            *("services.temporal.payloads", "services.setting_groups.secrets", "services.storage.jobs.plain_secrets"),
        ),
        ("cryptography", "temporalio"),
    ),
    "services.storage": May(
        (*_MEASURES, *_INSIDE, "peloton.extras", "services.fence"),
        ("opentelemetry", "alembic", "google", "orjson", "psycopg", "sqlalchemy", "sqlmodel", "zstandard"),
    ),
    "services.storage.audit": May(
        (*_MEASURES, *_INSIDE, "peloton.access.audit", "services.storage"), ("sqlalchemy", "sqlmodel")
    ),
    "services.access": May(
        ("peloton.access", "peloton.api", *_READS_FILES, "peloton.model", _HANDLERS, "peloton.ports"),
        ("google", "yaml"),
    ),
    "services.access.forwarded": May(("peloton.api", "peloton.errors", "services.access.caller"), ("grpc",)),
    "services.access.role_token": May(
        ("peloton.api.channels", "peloton.errors", "services.access.files", "services.tls.transport"), ("grpc",)
    ),
    "services.access.compose": May(
        (
            "peloton.access",
            "peloton.errors",
            "peloton.extras",
            "peloton.issuer",
            "services.access",
            "services.settings",
            "services.tls",
            "services.servers.role_surface",
        )
    ),
    "services.audit": May(
        (
            *_MEASURES,
            *("peloton.access", "peloton.api", "peloton.errors", "services.access", _HANDLERS),
            "services.storage.audit.audit_log",
        ),
        ("google", "grpc"),
    ),
    "services.audit.compose": May(("services.audit", "services.settings")),
    "services.access.oidc": May(
        ("peloton.access", "peloton.errors", "peloton.issuer", "peloton.model", "services.access.issuer"), ("jwt",)
    ),
    "services.access.issuer": May(("peloton.issuer",), ("jwt",)),
    "services.access.shares": May(
        (
            *("peloton.access", "peloton.errors"),
            *("services.access.caller", "services.servers.grpc_bounds", _HANDLERS, "services.servers.places"),
        )
    ),
    "services.api": May(
        (
            *_MEASURES,
            *_INSIDE,
            *_STORED,
            *_SERVES,
            "peloton.access",
            "services.access",
            "services.audit",
            "services.rested",
            "services.fence",
        ),
        ("google", "grpc", "grpc_health", "grpc_reflection", "opentelemetry"),
    ),
    "services.resmgr": May(
        (
            *_MEASURES,
            *_INSIDE,
            *_STORED,
            *_SERVES,
            "peloton.scheduling",
            "services.access.caller",
            "services.settings",
            "services.ticks",
        ),
        ("google", "grpc", "numpy", "opentelemetry"),
    ),
    "services.retention": May(
        (
            *("peloton.api", "peloton.errors", "peloton.extras", "peloton.lifecycle.retention", "peloton.model"),
            *("services.settings", "services.storage.storage", "services.storage.retention", "services.ticks"),
            *_MEASURES,
        ),
        ("duckdb", "obstore", "orjson", "zstandard"),
    ),
    "services.hostmgr": May(
        (
            *_MEASURES,
            *_INSIDE,
            *_STORED,
            *_SERVES,
            "peloton.hosts",
            "services.servers.bounded_http",
            "services.rested",
            "services.ticks",
            *(f"peloton.scheduling.{name}" for name in _CHOOSES_HOSTS.split()),
        ),
        ("google", "grpc", "opentelemetry"),
    ),
    # A driver of a cluster imports its port and no module above it; processes are put together in the runtime.
    "services.hostmgr.mesos": May(
        (*_INSIDE, "services.hostmgr.driver", "services.ticks"), ("google", "httptools", "orjson")
    ),
    "services.hostmgr.kubernetes": May(
        (
            *_INSIDE,
            "peloton.scheduling.slack",
            "services.hostmgr.driver",
            "services.hostmgr.external_port",
            "services.ticks",
        ),
        ("httptools", "orjson", "websockets", "yaml"),
    ),
    "services.servers.asgi_server": May(
        ("peloton.errors", _LISTENER, "services.servers.http_connection", "services.tls.transport"),
        ("starlette", "uvicorn"),
    ),
    "services.servers.bounded_listener": May(),
    "services.servers.http_connection": May((_LISTENER,), ("uvicorn",)),
    "services.servers.places": May(("peloton.errors",)),
    "services.aurorabridge": May(
        (
            "peloton.api",
            "peloton.client",
            "peloton.errors",
            "peloton.model",
            "services.access.forwarded",
            "services.servers.asgi_server",
            "services.settings",
            "services.tls.transport",
        ),
        ("google", "grpc", "kazoo", "orjson", "starlette", "thriftpy2", "uvicorn"),
    ),
    "services.web": May(
        (
            "peloton.access.caller",
            "peloton.api",
            "peloton.client",
            "peloton.errors",
            "peloton.extras",
            "peloton.issuer",
            "peloton.lifecycle.backoff",
            "peloton.model",
            "services.access.files",
            "services.access.forwarded",
            "services.servers.asgi_server",
            "services.role_settings",
            "services.settings",
            "services.tls.transport",
            "services.servers.places",
            "services.secrets.keyring",
            "services.secrets.payload_codec",
        ),
        ("cryptography", "google", "grpc", "orjson", "starlette", "uvicorn", "temporalio"),
    ),
    "services.worker": May(
        (
            *_MEASURES,
            "peloton.files",
            "peloton.lifecycle",
            "peloton.model",
            "peloton.ports",
            "workflows",
            "activities",
            "services.wakers.lifecycles",
            _QUEUES,
            "services.ticks",
            _FLEET,
            "services.temporal.worker_versions",
        ),
        ("temporalio",),
    ),
    "services.aurorabridge.events": May(
        (
            *("peloton.api", "peloton.errors", "peloton.model"),
            *("services.access.forwarded", "services.aurorabridge", "services.servers.places"),
        ),
        ("grpc", "httptools", "orjson", "starlette", "thriftpy2"),
    ),
    # The shared part of emulated clusters of any kind: it imports none of them.
    "services.lab.shared": May((), ("click", "yaml")),
    "services.lab.shared.http": May((_LISTENER,), ("httptools", "websockets")),
    "services.lab.kubernetes": May(("services.lab.shared",), ("click", "orjson", "yaml")),
    "services.lab.mesos": May(("services.lab.shared",), ("click", "orjson")),
    "services.lab.mesos.http": May(("services.lab.shared.http", "services.lab.shared.bounded_file"), ("orjson",)),
    "services.lab.mesos.master": May((*_MINICLUSTER, "services.lab.shared"), ("orjson",)),
    "services.lab.mesos.agents": May((*_MINICLUSTER, "services.lab.shared", "services.lab.mesos.master"), ("orjson",)),
    "services.lab.mesos.api": May(
        (*_MINICLUSTER, "services.lab.shared", "services.lab.mesos.master", "services.lab.mesos.agents"),
        ("orjson",),
    ),
    "services.lab.local": May(
        (
            "peloton.api",
            "peloton.client.tls",
            "peloton.errors",
            "peloton.extras",
            "peloton.files",
            "services.health_file",
            "services.log_lines",
            "services.settings",
            "services.tls.authority",
            "services.temporal.connection",
            "services.lab.kubernetes.kubeconfig",
            "services.lab.shared.hosts",
            "services.lab.shared.processes",
            "services.lab.shared.simulation.description",
            "services.storage.storage",  # to list the jobs whose files are kept
            "services.storage.migrate",
            "services.storage.sqlite_files",
        ),
        ("grpc",),
    ),
    "services.lab.local.own_kubernetes": May(
        ("peloton.errors", "services.hostmgr.kubernetes", "services.role_settings", "services.settings")
    ),
    "services.cluster_drivers": May(
        (*_INSIDE, *_HOSTMGR, "peloton.extras", "services.audit", "services.role_settings")
    ),
    "services.host_monitors": May(("peloton.model", "peloton.scheduling", *_HOSTMGR)),
    "services.backup": May((*_READS_FILES, "services", "workflows.attributes"), ("google", "sqlalchemy", "temporalio")),
    "services.roles": May(
        (*_INSIDE, "peloton.scheduling.placement", "workflows.policies", "services"), ("temporalio",)
    ),
    "services.announcement": May(
        (
            *("peloton.api.private", "peloton.client", "peloton.release", "services.processes", "services.settings"),
            "services.tls.transport",
        ),
        ("grpc",),
    ),
    "services.processes": May(
        (
            "peloton.model.diagnosis",
            "peloton.release",
            "services.secrets.keyring",
            "services.settings",
            "services.storage.processes",
            "services.temporal.connection",
        )
    ),
    "services.runtime": May((*_INSIDE, "peloton.extras", "workflows.policies", "services")),
    "services.secret_rotation": May(
        (
            *("peloton.errors", "services.secrets", "services.settings", "services.storage.jobs.config_values"),
            *("services.storage.schema_version", "services.storage.storage"),
        )
    ),
    "services.teardown": May(("peloton.errors", "peloton.model.ids", "services")),
    # The command line calls the API; only commands that run processes or read settings of roles import services.
    "cli": May(_CLI, _CLI_OTHERS),
    "cli.admin_token": May((*_CLI, "peloton.access"), _CLI_OTHERS),
    "cli.admin_audit": May((*_CLI, "peloton.access.audit"), _CLI_OTHERS),
    "cli.admin_deploy": May((*_CLI, "peloton.deployment"), _CLI_OTHERS),
    "cli.deployed": May((*_CLI, "peloton.deployment"), _CLI_OTHERS),
    "cli.backup": May((*_CLI, "services.backup", "services.settings"), _CLI_OTHERS),
    "cli.gate": May((*_CLI, "services.hostmgr.kubernetes"), _CLI_OTHERS),
    "cli.up": May((*_CLI, "services.lab.local"), _CLI_OTHERS),
    "cli.local": May((*_CLI, "services.lab.local"), _CLI_OTHERS),
    "cli.demo": May((*_CLI, "services.lab.local"), _CLI_OTHERS),
    "cli.top": May(_CLI, (*_CLI_OTHERS, "textual")),
    "cli.archive": May(
        (*_CLI, *(f"services.retention.{name}" for name in ("archive", "query")), "services.settings"),
        _CLI_OTHERS,
    ),
    "cli.admin_secrets": May((*_CLI, "services.secret_rotation", "services.secrets.keyring"), _CLI_OTHERS),
    "cli.check_store": May((*_CLI, "services.runtime"), _CLI_OTHERS),
    "cli.upgrade_schema": May((*_CLI, "services.runtime"), _CLI_OTHERS),
    "cli.agents": May((*_CLI, *_SETTINGS)),
    "cli.reference": May((*_CLI, "services.settings_page"), _CLI_OTHERS),
    "cli.role_settings": May((*_CLI, *_SETTINGS), _CLI_OTHERS),
    "cli.serve": May((*_CLI, "services.runtime"), _CLI_OTHERS),
}
