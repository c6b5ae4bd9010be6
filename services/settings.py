"""Settings of all roles, read from the environment into one frozen value per process. No other module reads the
environment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from peloton.errors import InvalidArgument

PREFIX = "PELOTON_"

Value = TypeVar("Value")


def setting(default: Value, help_text: str) -> Value:
    """Return a field with this default."""
    return field(default=default, metadata={"help": help_text})


@dataclass(frozen=True)
class Settings:
    """Settings of a process. The environment variable of a field is PELOTON_ and its name in capitals."""

    database: str = setting(
        "", "SQLAlchemy URL of the store, required: sqlite:///FILE or postgresql+psycopg://USER:PASSWORD@HOST/NAME"
    )
    database_pool: int = setting(16, "PostgreSQL connections of the pool of a process; it opens as many more on demand")
    temporal: str = setting("", "host:port of the Temporal frontend; empty: as Temporal's own configuration says")
    temporal_namespace: str = setting("", "Temporal namespace; empty: as Temporal's own configuration says")
    mesos: str = setting("localhost:5050", "Mesos master: host:port, or zk://HOSTS/PATH")
    cluster: str = setting("local", "name of the cluster that this host manager runs; never to be changed")
    mesos_role: str = setting("peloton", "Mesos role of the framework")
    mesos_user: str = setting("root", "user that pods run as")
    mesos_principal: str = setting("", "principal that the framework authenticates as; empty: it does not")
    mesos_secret_file: str = setting("", "file with the secret of the principal")
    mesos_tls: bool = setting(False, "whether master and agents speak TLS: true or false")
    mesos_tls_ca_file: str = setting("", "certificates of the authorities to trust; empty: those of this machine")
    mesos_tls_cert_file: str = setting("", "certificate to show to master and agents")
    mesos_tls_key_file: str = setting("", "its key; empty: it is in the same file")
    mesos_tls_names: bool = setting(True, "whether certificates must name the host that shows them: true or false")
    kubernetes: str = setting(
        "",
        "kubeconfig of a Kubernetes cluster that this host manager runs instead of Mesos; in-cluster: that "
        "of its own pod; empty: Mesos",
    )
    kubernetes_context: str = setting("", "context of the kubeconfig; empty: its current one")
    kubernetes_namespace: str = setting("peloton", "namespace of the pods")
    kubernetes_node_selector: str = setting("", "labels of the nodes to use, KEY=VALUE,KEY=VALUE; empty: all nodes")
    kubernetes_taint: str = setting("peloton.io/dedicated", "key of the taint of dedicated nodes, which pods tolerate")
    kubernetes_pool: str = setting("", "pool of external pods that name none; empty: none")
    kubernetes_priority_class: str = setting("peloton", "priority class of the pods; empty: that of the cluster")
    kubernetes_default_image: str = setting("busybox:stable", "image of pods that name none")
    kubernetes_ports: str = setting("25000-29999", "ports of nodes that pods get, FIRST-LAST; empty: none")
    kubernetes_volumes: str = setting("", "folder of each node in which it keeps volumes; empty: nodes keep none")
    kubernetes_log_retention_s: float = setting(
        600.0, "seconds for which ended pods are kept, so that their logs can be read"
    )
    kubernetes_image_timeout_s: float = setting(900.0, "seconds in which the images of a pod must have come")
    kubernetes_lost_node_s: float = setting(60.0, "seconds after which the pods of a node that is not ready are lost")
    kubernetes_slack_period_s: float = setting(
        15.0, "seconds between measurements of what pods leave to revocable ones; 0: none"
    )
    host: str = setting("127.0.0.1", "address to listen on")
    advertise: str = setting("", "host that other roles reach this one by; default: host")
    port: int = setting(5397, "port of the public API")
    resmgr_port: int = setting(0, "port of the resource manager; 0 picks a free one")
    hostmgr_port: int = setting(0, "port of the host manager; 0 picks a free one")
    api: str = setting("127.0.0.1:5397", "where role web finds the API: HOST:PORT, or several with commas")
    web_port: int = setting(5398, "port of the web pages; 0 picks a free one")
    web_hosts: str = setting(
        "", "names by which browsers may ask for the pages, with commas; localhost and addresses always may"
    )
    cached_workflows: int = setting(
        0,
        "workflows of each task queue that a worker keeps in memory; 0: as many as half of the memory holds "
        "that it may use, at least 1,000",
    )
    worker_promote: str = setting(
        "auto",
        "who lets a new version of the workers run more workflows: auto, the resource manager step by step; manual, "
        "a person by peloton admin worker promote; the same for resmgr, api and worker",
    )
    temporal_ui: str = setting("", "URL of Temporal's Web UI, to which pages link; empty: they do not")
    leader_ttl_s: float = setting(5.0, "seconds after which a silent leader is replaced")
    entitlement_period_s: float = setting(5.0, "seconds between entitlement cycles")
    preemption: bool = setting(True, "whether preemption reclaims what pools have lent: true or false")
    preemption_period_s: float = setting(60.0, "seconds between rounds of preemption")
    preemption_rounds: int = setting(
        5, "rounds in a row above its entitlement after which pods of a pool are preempted"
    )
    backfill_s: int = setting(
        300,
        "seconds for which a waiting gang may be passed by gangs behind it in its queue that fit; 0: never",
    )
    check_invariants: bool = setting(
        False, "whether the resource manager checks its state for consistency after each cycle"
    )
    qos: bool = setting(True, "whether revocable pods leave hot hosts: true or false")
    qos_period_s: float = setting(5.0, "seconds between measurements of the usage of hosts")
    qos_hot_percent: int = setting(90, "percent of a host's cpu or memory above which it is hot")
    qos_target_percent: int = setting(80, "percent below which evictions bring a hot host")
    qos_samples: int = setting(2, "measurements in a row that must agree before pods are evicted")
    qos_closed_s: float = setting(60.0, "seconds for which a host that was hot takes no revocable pods at first")
    advisor: bool = setting(
        False, "whether all hosts are measured and marked, not only those with revocable pods: true or false"
    )
    advisor_orange_percent: int = setting(
        80, "percent of a host's cpu or memory in use from which on it is marked orange"
    )
    advisor_red_percent: int = setting(90, "percent from which on it is marked red")
    advisor_samples: int = setting(3, "samples in a row that must agree before a mark rises")
    advisor_margin_percent: int = setting(
        10, "percent of its bound by which samples must be below it before a mark falls"
    )
    advisor_hold_s: float = setting(60.0, "seconds for which they must be so low")
    latency_port: int = setting(0, "port of the host manager at which pods report latencies; 0: none")
    p95_orange_ms: int = setting(
        0, "milliseconds of p95 from which on a service is marked orange; 0: it is not, by p95"
    )
    p95_red_ms: int = setting(0, "the same for red")
    p99_orange_ms: int = setting(
        0, "milliseconds of p99 from which on a service is marked orange; 0: it is not, by p99"
    )
    p99_red_ms: int = setting(0, "the same for red")
    agents_period_s: float = setting(10.0, "seconds between reads of Mesos's list of agents and of their slack")
    agent_reregister_timeout_s: float = setting(
        600.0, "seconds that agents have to come back to a new Mesos master before their pods are given up"
    )
    pod_placement_timeout_s: float = setting(
        600.0, "placement timeout in seconds of an admitted pod without a gang; it is requeued then"
    )
    offer_hold_s: float = setting(10.0, "seconds after which offers that no launch has used go back to Mesos")
    gang_placement_timeout_s: float = setting(
        600.0, "placement timeout in seconds of an admitted gang; it is requeued then"
    )
    gang_launch_timeout_s: float = setting(
        300.0, "seconds in which all pods of a launched gang must run; it is requeued otherwise"
    )
    retry_wait_s: int = setting(
        10, "first backoff in seconds of a failed batch pod, on its only host or at its third quick failure; 0: none"
    )
    retry_wait_max_s: int = setting(600, "maximum in seconds of that backoff, which doubles with each further failure")
    host_lease_s: float = setting(30.0, "seconds for which a placement may lease hosts")
    host_pools: bool = setting(False, "whether hosts are partitioned into host pools: true or false")
    history_period_s: int = setting(
        60, "seconds between samples of the time series of pools and clusters, which divide a minute; 0: none"
    )
    mover_period_s: float = setting(10.0, "seconds between rounds of the mover of host pools, while it is enabled")
    mover_high_percent: int = setting(80, "percent of its hosts in use above which a host pool takes hosts")
    mover_target_percent: int = setting(65, "percent down to which it takes hosts, and below which it returns them")
    mover_marked_percent: int = setting(30, "percent of its hosts marked orange or red above which it takes hosts")
    mover_take_after_s: float = setting(60.0, "seconds for which it must have lacked hosts")
    mover_take_after_urgent_s: float = setting(
        15.0, "the same, in seconds, while pods wait for hosts, or a host or a service is marked red"
    )
    mover_return_after_s: float = setting(900.0, "seconds for which it must have had spare hosts, at first")
    mover_return_after_max_s: float = setting(
        14_400.0, "seconds beyond which that time is not doubled when it was too short"
    )
    mover_settle_s: float = setting(120.0, "seconds after one decision for a host pool before the next one")
    mover_hosts_at_a_time: int = setting(5, "hosts that one decision moves at most")
    mover_hosts_per_hour: int = setting(30, "hosts that a host pool takes and gives back in an hour at most")
    mover_give_up_s: float = setting(
        3_600.0, "seconds after which a host that the mover moves and that is not empty stays where it is"
    )
    host_reservation_after_s: float = setting(
        120.0, "seconds after which a host is reserved for an admitted pod that fits on none now"
    )
    host_reservation_s: float = setting(1_800.0, "seconds after which such a reservation expires; 0: no reservations")
    maintenance_share: float = setting(
        0.1, "share of the hosts that may be in maintenance at a time; always at least one host"
    )
    maintenance_deadline_s: int = setting(3_600, "seconds after which the drain of a host may be forced")
    prefetch_url: str = setting("", "URL of a service that prefetches images on hosts; empty: no prefetch")
    jobs_paced: int = setting(100, "delay calls that create jobs above this many jobs that wait to be started")
    jobs_waiting_max: int = setting(
        10_000, "reject new jobs (RESOURCE_EXHAUSTED) above this many jobs that wait to be started"
    )
    jobs_active_max: int = setting(100_000, "reject new jobs above this many jobs that have not ended")
    pods_active_max: int = setting(2_000_000, "reject new jobs above this many pods of jobs that have not ended")
    otlp: str = setting("", "OTLP gRPC endpoint for metrics; empty: none are exported")
    log_level: str = setting("INFO", "DEBUG, INFO, WARNING or ERROR")

    def require_database(self) -> str:
        """Return the address of the database. Raises InvalidArgument without one: a role on a database of its own would
        share no state with the others.
        """
        if not self.database:
            raise InvalidArgument(
                "PELOTON_DATABASE is not set: want sqlite:///FILE or postgresql+psycopg://USER:PASSWORD@HOST/NAME"
            )
        return self.database

    @property
    def advertised(self) -> str:
        return self.advertise or self.host


_KINDS: dict[str, tuple[Callable[[str], Any], str]] = {
    "int": (int, "a number"),
    "float": (float, "a number"),
    "bool": (lambda text: {"true": True, "false": False}[text.lower()], "true or false"),
}


def load(environment: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings. Raises InvalidArgument naming the variable for a value of the wrong kind."""
    values: dict[str, Any] = {}
    for spec in fields(Settings):
        name = PREFIX + spec.name.upper()
        text = environment.get(name)
        if text is None:
            continue
        kind, wanted = _KINDS.get(str(spec.type), (str, "text"))
        try:
            values[spec.name] = kind(text)
        except (ValueError, KeyError):
            raise InvalidArgument(f"{name}={text!r}: want {wanted}") from None
    return Settings(**values)
