"""Settings of all roles, from the environment. One frozen value per process; nothing else reads the environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from peloton.errors import InvalidArgument

PREFIX = "PELOTON_"


@dataclass(frozen=True)
class Settings:
    """The environment variable of a field is PELOTON_ and its name in capitals."""

    database: str = field(
        default="",
        metadata={
            "help": "SQLAlchemy URL of the store, required: sqlite:///FILE or "
            "postgresql+psycopg://USER:PASSWORD@HOST/NAME"
        },
    )
    database_pool: int = field(
        default=16,
        metadata={"help": "connections that a process keeps open to PostgreSQL; it opens as many again in need"},
    )
    temporal: str = field(
        default="",
        metadata={"help": "host:port of the Temporal frontend; empty: as Temporal's own configuration says"},
    )
    temporal_namespace: str = field(
        default="", metadata={"help": "Temporal namespace; empty: as Temporal's own configuration says"}
    )
    mesos: str = field(default="localhost:5050", metadata={"help": "Mesos master: host:port, or zk://HOSTS/PATH"})
    cluster: str = field(
        default="local", metadata={"help": "name of the cluster that this host manager runs; never to be changed"}
    )
    mesos_role: str = field(default="peloton", metadata={"help": "Mesos role of the framework"})
    mesos_user: str = field(default="root", metadata={"help": "user that pods run as"})
    mesos_principal: str = field(
        default="", metadata={"help": "principal that the framework authenticates as; empty: it does not"}
    )
    mesos_secret_file: str = field(default="", metadata={"help": "file with the secret of the principal"})
    mesos_tls: bool = field(default=False, metadata={"help": "whether master and agents speak TLS: true or false"})
    mesos_tls_ca_file: str = field(
        default="", metadata={"help": "certificates of the authorities to trust; empty: those of this machine"}
    )
    mesos_tls_cert_file: str = field(default="", metadata={"help": "certificate to show to master and agents"})
    mesos_tls_key_file: str = field(default="", metadata={"help": "its key; empty: it is in the same file"})
    mesos_tls_names: bool = field(
        default=True, metadata={"help": "whether certificates must name the host that shows them: true or false"}
    )
    kubernetes: str = field(
        default="",
        metadata={
            "help": "kubeconfig of a Kubernetes cluster that this host manager runs instead of Mesos; in-cluster: that "
            "of its own pod; empty: Mesos"
        },
    )
    kubernetes_context: str = field(default="", metadata={"help": "context of the kubeconfig; empty: its current one"})
    kubernetes_namespace: str = field(default="peloton", metadata={"help": "namespace of the pods"})
    kubernetes_node_selector: str = field(
        default="", metadata={"help": "labels of the nodes to use, KEY=VALUE,KEY=VALUE; empty: all nodes"}
    )
    kubernetes_taint: str = field(
        default="peloton.io/dedicated", metadata={"help": "key of the taint of dedicated nodes, which pods tolerate"}
    )
    kubernetes_pool: str = field(
        default="", metadata={"help": "pool of pods that others make for Peloton and that name none; empty: none"}
    )
    kubernetes_priority_class: str = field(
        default="peloton", metadata={"help": "priority class of the pods; empty: that of the cluster"}
    )
    kubernetes_default_image: str = field(default="busybox:stable", metadata={"help": "image of pods that name none"})
    kubernetes_ports: str = field(
        default="25000-29999", metadata={"help": "ports of nodes that pods get, FIRST-LAST; empty: none"}
    )
    kubernetes_volumes: str = field(
        default="", metadata={"help": "folder of each node in which it keeps volumes; empty: nodes keep none"}
    )
    kubernetes_log_retention_s: float = field(
        default=600.0, metadata={"help": "seconds for which ended pods are kept, so that their logs can be read"}
    )
    kubernetes_image_timeout_s: float = field(
        default=900.0, metadata={"help": "seconds in which the images of a pod must have come"}
    )
    kubernetes_lost_node_s: float = field(
        default=60.0, metadata={"help": "seconds after which the pods of a node that is not ready are lost"}
    )
    kubernetes_slack_period_s: float = field(
        default=15.0,
        metadata={"help": "seconds between measurements of what pods leave to revocable ones; 0: none"},
    )
    host: str = field(default="127.0.0.1", metadata={"help": "address to listen on"})
    advertise: str = field(default="", metadata={"help": "host that other roles reach this one by; default: host"})
    port: int = field(default=5397, metadata={"help": "port of the public API"})
    resmgr_port: int = field(default=0, metadata={"help": "port of the resource manager; 0 picks a free one"})
    hostmgr_port: int = field(default=0, metadata={"help": "port of the host manager; 0 picks a free one"})
    api: str = field(
        default="127.0.0.1:5397", metadata={"help": "where role web finds the API: HOST:PORT, or several with commas"}
    )
    web_port: int = field(default=5398, metadata={"help": "port of the web pages; 0 picks a free one"})
    web_hosts: str = field(
        default="",
        metadata={
            "help": "names by which browsers may ask for the pages, with commas; localhost and addresses always may"
        },
    )
    temporal_ui: str = field(
        default="", metadata={"help": "URL of Temporal's Web UI, to which pages link; empty: they do not"}
    )
    leader_ttl_s: float = field(default=5.0, metadata={"help": "seconds after which a silent leader is replaced"})
    entitlement_period_s: float = field(default=5.0, metadata={"help": "seconds between entitlement cycles"})
    preemption: bool = field(default=True, metadata={"help": "whether pools get back what they lent: true or false"})
    preemption_period_s: float = field(default=60.0, metadata={"help": "seconds between rounds of preemption"})
    preemption_rounds: int = field(
        default=5, metadata={"help": "rounds in a row above its entitlement after which a pool gives back"}
    )
    check_invariants: bool = field(
        default=False, metadata={"help": "whether the resource manager checks its books after each cycle"}
    )
    qos: bool = field(default=True, metadata={"help": "whether revocable pods leave hot hosts: true or false"})
    qos_period_s: float = field(default=5.0, metadata={"help": "seconds between looks at what hosts use"})
    qos_hot_percent: int = field(
        default=90, metadata={"help": "percent of a host's cpu or memory above which it is hot"}
    )
    qos_target_percent: int = field(default=80, metadata={"help": "percent below which evictions bring a hot host"})
    qos_samples: int = field(default=2, metadata={"help": "looks in a row that must agree before pods leave"})
    qos_closed_s: float = field(
        default=60.0, metadata={"help": "seconds for which a host that was hot takes no revocable pods at first"}
    )
    advisor: bool = field(
        default=False,
        metadata={
            "help": "whether all hosts are measured and marked, not only those with revocable pods: true or false"
        },
    )
    advisor_orange_percent: int = field(
        default=80, metadata={"help": "percent of a host's cpu or memory in use from which on it is marked orange"}
    )
    advisor_red_percent: int = field(default=90, metadata={"help": "percent from which on it is marked red"})
    advisor_samples: int = field(default=3, metadata={"help": "samples in a row that must agree before a mark rises"})
    advisor_margin_percent: int = field(
        default=10, metadata={"help": "percent of its bound by which samples must be below it before a mark falls"}
    )
    advisor_hold_s: float = field(default=60.0, metadata={"help": "seconds for which they must be so low"})
    latency_port: int = field(
        default=0, metadata={"help": "port of the host manager at which pods report latencies; 0: none"}
    )
    p95_orange_ms: int = field(
        default=0,
        metadata={"help": "milliseconds of p95 from which on a service is marked orange; 0: it is not, by p95"},
    )
    p95_red_ms: int = field(default=0, metadata={"help": "the same for red"})
    p99_orange_ms: int = field(
        default=0,
        metadata={"help": "milliseconds of p99 from which on a service is marked orange; 0: it is not, by p99"},
    )
    p99_red_ms: int = field(default=0, metadata={"help": "the same for red"})
    agents_period_s: float = field(
        default=10.0, metadata={"help": "seconds between looks at Mesos's agents: which there are, and their slack"}
    )
    agent_reregister_timeout_s: float = field(
        default=600.0,
        metadata={"help": "seconds that agents have to come back to a new Mesos master before their pods are given up"},
    )
    pod_placement_timeout_s: float = field(
        default=600.0,
        metadata={"help": "seconds in which an admitted pod that stands alone finds a host, or is queued again"},
    )
    offer_hold_s: float = field(
        default=10.0, metadata={"help": "seconds after which offers that no launch has used go back to Mesos"}
    )
    gang_placement_timeout_s: float = field(
        default=600.0,
        metadata={"help": "seconds in which an admitted gang finds hosts for all, or is queued again"},
    )
    gang_launch_timeout_s: float = field(
        default=300.0, metadata={"help": "seconds in which all of a launched gang runs, or it is queued again"}
    )
    retry_wait_s: int = field(
        default=10,
        metadata={
            "help": "seconds that a batch pod which failed waits at first, from its start; 0: it runs again at once"
        },
    )
    retry_wait_max_s: int = field(
        default=600, metadata={"help": "seconds beyond which that time is not doubled with each failure"}
    )
    host_lease_s: float = field(default=30.0, metadata={"help": "seconds a placement may hold hosts"})
    host_pools: bool = field(
        default=False, metadata={"help": "whether hosts are partitioned into host pools: true or false"}
    )
    history_period_s: int = field(
        default=60,
        metadata={
            "help": "seconds between samples of the time series of pools and clusters, which divide a minute; 0: none"
        },
    )
    mover_period_s: float = field(
        default=10.0, metadata={"help": "seconds between looks of the mover of host pools, while it is on"}
    )
    mover_high_percent: int = field(
        default=80, metadata={"help": "percent of its hosts in use above which a host pool takes hosts"}
    )
    mover_target_percent: int = field(
        default=65, metadata={"help": "percent to which it takes hosts, and below which it gives them back"}
    )
    mover_marked_percent: int = field(
        default=30, metadata={"help": "percent of its hosts marked orange or red above which it takes hosts"}
    )
    mover_take_after_s: float = field(default=60.0, metadata={"help": "seconds for which it must have lacked hosts"})
    mover_take_after_urgent_s: float = field(
        default=15.0, metadata={"help": "the same while pods wait for hosts, or a host or a service is marked red"}
    )
    mover_return_after_s: float = field(
        default=900.0, metadata={"help": "seconds for which it must have had hosts to spare, at first"}
    )
    mover_return_after_max_s: float = field(
        default=14_400.0, metadata={"help": "seconds beyond which that time is not doubled when it was too short"}
    )
    mover_settle_s: float = field(
        default=120.0, metadata={"help": "seconds after one decision for a host pool before the next one"}
    )
    mover_hosts_at_a_time: int = field(default=5, metadata={"help": "hosts that one decision moves at most"})
    mover_hosts_per_hour: int = field(
        default=30, metadata={"help": "hosts that a host pool takes and gives back in an hour at most"}
    )
    mover_give_up_s: float = field(
        default=3_600.0,
        metadata={"help": "seconds after which a host that the mover moves and that is not empty stays where it is"},
    )
    host_reservation_after_s: float = field(
        default=120.0,
        metadata={"help": "seconds after which a host is reserved for an admitted pod that fits on none now"},
    )
    host_reservation_s: float = field(
        default=1_800.0,
        metadata={"help": "seconds after which such a host is given back at the latest; 0: none is reserved"},
    )
    maintenance_share: float = field(
        default=0.1, metadata={"help": "share of the hosts that may be in maintenance at a time; at least one may"}
    )
    maintenance_deadline_s: int = field(
        default=3_600, metadata={"help": "seconds after which the drain of a host may be forced"}
    )
    prefetch_url: str = field(
        default="", metadata={"help": "URL that has hosts fetch images ahead; empty: none are fetched ahead"}
    )
    jobs_paced: int = field(
        default=100, metadata={"help": "jobs that wait to be started from which on calls that bring more take longer"}
    )
    jobs_waiting_max: int = field(
        default=10_000,
        metadata={"help": "jobs not yet begun at which no more are taken; clients shall come back later"},
    )
    jobs_active_max: int = field(
        default=100_000, metadata={"help": "jobs that have not ended at which no more are taken"}
    )
    pods_active_max: int = field(
        default=2_000_000, metadata={"help": "pods wanted by jobs that have not ended at which no more are taken"}
    )
    otlp: str = field(default="", metadata={"help": "OTLP gRPC endpoint for metrics; empty: none are exported"})
    log_level: str = field(default="INFO", metadata={"help": "DEBUG, INFO, WARNING or ERROR"})

    def require_database(self) -> str:
        """Raises InvalidArgument: a role that makes one up would work on a store that no other role reads."""
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
    """Raises InvalidArgument naming the variable for a value of the wrong kind."""
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
