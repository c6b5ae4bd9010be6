"""The table of settings: each with its type, bounds, default, readers and help. docs/settings.md is made of it."""

from __future__ import annotations

from dataclasses import dataclass, fields

from peloton.errors import InvalidSettings
from services.setting_rules import (
    ADDRESS,
    ADDRESSES,
    CLI,
    CLUSTER,
    DATABASE_URL,
    DAY_S,
    ENDPOINT,
    MASTER,
    POOL_PATH,
    PORT_MAX,
    ROLES,
    URL,
    WEEK_S,
    WORD,
    ZOOKEEPER,
    Together,
    is_ascending,
    is_ascending_or_off,
    is_less,
    one_of,
    setting,
    setting_of,
)

ALL = " ".join(ROLES)
BRIDGE = "aurorabridge"
SERVERS = "api worker resmgr hostmgr"
AGENTS = f"hostmgr web {CLI}"


@dataclass(frozen=True)
class Settings:
    """Settings of a process. The environment variable of a field is PELOTON_ and its name in capitals."""

    database: str = setting(
        "",
        SERVERS,
        "required: SQLAlchemy URL of the store, `sqlite:///FILE` or `postgresql+psycopg://USER:PASSWORD@HOST/NAME`",
        form=DATABASE_URL,
    )
    database_pool: int = setting(
        16,
        SERVERS,
        "connections that a process keeps open to PostgreSQL; it opens as many again while it needs them. See "
        "[PostgreSQL](operations.md#postgresql)",
        low=1,
        high=1_000,
    )
    temporal: str = setting(
        "",
        SERVERS,
        "host:port of the Temporal frontend; empty: as [Temporal's own configuration](operations.md#temporal) says, "
        "else `localhost:7233`",
        form=ADDRESS,
    )
    temporal_namespace: str = setting(
        "",
        f"{SERVERS} web",
        "Temporal namespace, one per Peloton; empty: as Temporal's own configuration says, else `default`",
        form=WORD,
    )
    mesos: str = setting(
        "localhost:5050", "hostmgr", "Mesos master: `host:port`, or `zk://HOST:PORT,HOST:PORT/PATH`", form=MASTER
    )
    cluster: str = setting(
        "local",
        "api resmgr hostmgr",
        "name of the cluster that this host manager runs, see [several clusters](operations.md#several-clusters). "
        "Its pods, hosts and framework id are stored under it: never change it",
        form=CLUSTER,
    )
    mesos_role: str = setting("peloton", "hostmgr", "Mesos role of the framework", form=WORD)
    mesos_user: str = setting(
        "root",
        "hostmgr",
        "user that pods run as unless their command names one; a change holds for pods launched from then on",
        form=WORD,
    )
    mesos_principal: str = setting(
        "",
        AGENTS,
        "principal that the framework authenticates as; empty: it does not. See [Mesos](operations.md#mesos)",
    )
    mesos_secret_file: str = setting("", AGENTS, "file with the secret of the principal, in one line")
    mesos_tls: bool = setting(False, AGENTS, "whether master and agents speak TLS")
    mesos_tls_ca_file: str = setting(
        "", AGENTS, "PEM file of the authorities whose certificates are trusted; empty: those of this machine"
    )
    mesos_tls_cert_file: str = setting("", AGENTS, "PEM file of the certificate that is shown to master and agents")
    mesos_tls_key_file: str = setting("", AGENTS, "PEM file of its key; empty: it is in the same file")
    mesos_tls_names: bool = setting(
        True,
        AGENTS,
        "whether the certificate of a master or an agent must name the address it is reached by. Masters found "
        "through ZooKeeper, and agents, are reached by IP address",
    )
    kubernetes: str = setting(
        "",
        "hostmgr",
        "a [Kubernetes](kubernetes/operations.md) cluster that this host manager runs instead of Mesos: path of a "
        "kubeconfig, or `in-cluster` for the service account of its own pod; empty: Mesos",
    )
    kubernetes_context: str = setting("", "hostmgr", "context of the kubeconfig; empty: its current one")
    kubernetes_namespace: str = setting(
        "peloton", "hostmgr", "namespace of the pods; made at the start if it is not there", form=WORD
    )
    kubernetes_node_selector: str = setting(
        "", "hostmgr", "labels that a node must have to be used, `KEY=VALUE,KEY=VALUE`; empty: all nodes"
    )
    kubernetes_taint: str = setting(
        "peloton.io/dedicated",
        "hostmgr",
        "key of a taint that keeps external pods off nodes dedicated to Peloton, whose pods tolerate it",
        form=WORD,
    )
    kubernetes_pool: str = setting(
        "",
        "hostmgr",
        "path of the pool of [external pods](kubernetes/pools-for-kubectl.md) for which neither the pod nor its "
        "namespace names a pool; empty: such pods are refused",
    )
    kubernetes_priority_class: str = setting(
        "peloton",
        "hostmgr",
        "priority class of the pods, so that kube-scheduler evicts none of them; made at the start if it is not "
        "there. Empty: pods name none",
        form=WORD,
        may_be_empty=True,
    )
    kubernetes_default_image: str = setting(
        "busybox:stable", "hostmgr", "image of pods that name none: Kubernetes runs no pod without an image", form=WORD
    )
    kubernetes_ports: str = setting(
        "25000-29999",
        "hostmgr",
        "ports of nodes that pods with dynamic ports get, outside of Kubernetes' own NodePort range; empty: none",
        form=WORD,
        may_be_empty=True,
    )
    kubernetes_volumes: str = setting(
        "",
        "hostmgr",
        "folder of each node in which it keeps [volumes](stateful.md#in-kubernetes), like "
        "`/var/lib/peloton/volumes`; empty: nodes keep none",
    )
    kubernetes_log_retention_s: float = setting(
        600.0,
        "hostmgr",
        "seconds for which an ended pod is kept after its end, so that its log can be read; at most 10,000 are kept",
        low=0,
        high=WEEK_S,
    )
    kubernetes_image_timeout_s: float = setting(
        900.0, "hostmgr", "seconds in which the images of a pod must have been pulled, or it fails", low=0, high=WEEK_S
    )
    kubernetes_lost_node_s: float = setting(
        60.0,
        "hostmgr",
        "seconds after which a node that is not ready is no host any more, and its pods are LOST. Kubernetes itself "
        "takes 50 s to notice that a node is silent",
        low=0,
        high=WEEK_S,
    )
    kubernetes_slack_period_s: float = setting(
        15.0,
        "hostmgr",
        "seconds between measurements of the resources that pods leave unused for [revocable "
        "ones](kubernetes/operations.md#oversubscription); at most 200 nodes at a time, the others follow. 0: no "
        "node has slack",
        low=0,
        high=WEEK_S,
    )
    host: str = setting("127.0.0.1", "api resmgr hostmgr web aurorabridge", "address to listen on", form=WORD)
    advertise: str = setting(
        "",
        "resmgr hostmgr aurorabridge",
        "host by which other roles and clients reach this one; empty: `PELOTON_HOST`. Must be set when that is 0.0.0.0",
        form=WORD,
    )
    port: int = setting(5397, "api", "port of the public API", low=1, high=PORT_MAX)
    resmgr_port: int = setting(
        0, "resmgr", "port of the resource manager; 0 picks a free one, which the lease names", low=0, high=PORT_MAX
    )
    hostmgr_port: int = setting(0, "hostmgr", "port of the host manager; 0 picks a free one", low=0, high=PORT_MAX)
    direct_calls: bool = setting(
        False,
        "resmgr hostmgr",
        "resource manager and host manager answer calls of public services from any client, not only from other roles",
    )
    api: str = setting(
        "127.0.0.1:5397",
        "web aurorabridge",
        "where roles `web` and `aurorabridge` find the API: `HOST:PORT`, or several with commas; they need this alone",
        form=ADDRESSES,
    )
    web_port: int = setting(5398, "web", "port of the [web pages](web.md); 0 picks a free one", low=0, high=PORT_MAX)
    web_hosts: str = setting(
        "",
        "web",
        "host names by which browsers may request the pages, with commas; `localhost` and addresses are always allowed",
    )
    aurora_port: int = setting(5396, BRIDGE, "port of the Aurora bridge; 0 picks a free one", low=0, high=PORT_MAX)
    aurora_zookeeper: str = setting(
        "",
        BRIDGE,
        "node of ZooKeeper under which each bridge registers itself, as Aurora's clients look for a scheduler: "
        "`zk://HOST:PORT,HOST:PORT/aurora/scheduler`; empty: none",
        form=ZOOKEEPER,
    )
    aurora_pool: str = setting(
        "/AuroraBridge", BRIDGE, "path of the pool of its jobs; created if it is not there", form=POOL_PATH
    )
    aurora_gpu_pool: str = setting(
        "/GPUAuroraBridge", BRIDGE, "path of the pool of its jobs that ask for gpus", form=POOL_PATH
    )
    aurora_thermos: str = setting(
        "",
        BRIDGE,
        "path or URL of the Thermos executor, such as `/usr/share/aurora/bin/thermos_executor.pex`; empty: pods run "
        "the command of the first process of their task without Thermos",
        form=WORD,
    )
    aurora_thermos_flags: str = setting(
        "--preserve_env --nosetuid-health-checks --nosetuid --no-create-user",
        BRIDGE,
        "command line of the Thermos executor",
        may_be_empty=True,
    )
    aurora_thermos_resources: str = setting("", BRIDGE, "files fetched with the Thermos executor, with commas")
    aurora_thermos_cpu: float = setting(0.0, BRIDGE, "cpus of the Thermos executor itself", low=0, high=1_000)
    aurora_thermos_memory_mib: int = setting(0, BRIDGE, "memory of the Thermos executor in MiB", low=0, high=1_000_000)
    aurora_in_place: bool = setting(False, BRIDGE, "whether updates prefer the host that an instance was on")
    aurora_pod_runs_depth: int = setting(
        6, BRIDGE, "runs of each instance that `getTasksWithoutConfigs` returns", low=1, high=100
    )
    aurora_tasks_max: int = setting(
        1_000, BRIDGE, "tasks up to which it returns more than two runs of each instance", low=1, high=1_000_000
    )
    aurora_kafka_url: str = setting(
        "",
        BRIDGE,
        "URL of a topic of a Kafka REST proxy to which one bridge sends each change of a task, such as "
        "`http://HOST:PORT/topics/TOPIC`; empty: none does",
        form=URL,
    )
    cached_workflows: int = setting(
        0,
        "worker",
        "workflows of each task queue that a worker keeps in memory; 0: as many as fit into half of its memory "
        "limit (its control group's, or the machine's), at least 1,000, of 256 KiB each. A wake-up of a job whose "
        "workflow is not kept replays its history, which costs the worker about ten times as much",
        low=0,
        high=10_000_000,
    )
    worker_promote: str = setting(
        "auto",
        "api worker resmgr",
        "who lets a [new version of the workers](operations.md#versions-of-the-workers) run more workflows: `auto`, "
        "the leading resource manager step by step; `manual`, a person by `peloton admin worker promote`. The same "
        "for `resmgr`, `worker` and `api`, which shows it",
        form=one_of("auto", "manual"),
    )
    temporal_ui: str = setting(
        "",
        "web",
        "URL of Temporal's Web UI, such as `http://temporal:8080`, to which pages link; empty: they do not",
        form=URL,
    )
    leader_ttl_s: float = setting(
        5.0, "resmgr hostmgr", "seconds after which a silent leader is replaced", low=0.5, high=3_600
    )
    entitlement_period_s: float = setting(
        5.0, "resmgr", "seconds between entitlement cycles when nothing changes", low=0.1, high=3_600
    )
    preemption: bool = setting(
        True,
        "resmgr",
        "whether pools reclaim resources that they lent, and gangs of higher priority those of lower priority. "
        "Without it non-preemptible pods may use more than their pool's reservation",
    )
    preemption_period_s: float = setting(60.0, "resmgr", "seconds between rounds of preemption", low=0.1, high=DAY_S)
    preemption_rounds: int = setting(
        5, "resmgr", "rounds in a row above its entitlement after which pods of a pool are evicted", low=1, high=1_000
    )
    backfill_s: int = setting(
        300,
        "resmgr",
        "seconds for which a gang that waits may be passed by gangs behind it in its queue that fit, in all queues "
        "but the ordinary one ([ADR 68](adr/0068-a-waiting-gang-is-passed-for-a-bounded-time.md)); a new leader of "
        "the resource manager counts them again. 0: never",
        low=0,
        high=WEEK_S,
    )
    check_invariants: bool = setting(
        False,
        "resmgr",
        "whether the resource manager checks its accounts after each cycle; a fault is an error in its log and "
        "counts in a metric, nothing stops. Costs some milliseconds per 100,000 pods and cycle",
    )
    qos: bool = setting(True, "hostmgr", "whether revocable pods leave hosts that are hot or short of slack")
    qos_period_s: float = setting(5.0, "hostmgr", "seconds between measurements of hosts", low=0.1, high=3_600)
    qos_hot_percent: int = setting(
        90, "hostmgr", "percent of a host's cpu or memory above which it is hot", low=1, high=100
    )
    qos_target_percent: int = setting(80, "hostmgr", "percent below which evictions bring a hot host", low=1, high=100)
    qos_samples: int = setting(
        2, "hostmgr", "measurements in a row that must agree before pods leave", low=1, high=1_000
    )
    qos_closed_s: float = setting(
        60.0,
        "hostmgr",
        "seconds for which a host that was hot takes no revocable pods; twice as long each time it is hot again "
        "soon, at most an hour",
        low=0,
        high=DAY_S,
    )
    advisor: bool = setting(
        False,
        "hostmgr",
        "whether all hosts are measured and [marked](host-advisor.md), not only those with revocable pods",
    )
    advisor_orange_percent: int = setting(
        80, "hostmgr", "percent of a host's cpu or memory in use from which on it is marked orange", low=1, high=100
    )
    advisor_red_percent: int = setting(90, "hostmgr", "percent from which on it is marked red", low=1, high=100)
    advisor_samples: int = setting(
        3, "hostmgr", "samples in a row that must agree before a mark rises", low=1, high=1_000
    )
    advisor_margin_percent: int = setting(
        10, "hostmgr", "percent of its bound by which samples must be below it before a mark falls", low=0, high=99
    )
    advisor_hold_s: float = setting(60.0, "hostmgr", "seconds for which they must be so low", low=0, high=DAY_S)
    latency_port: int = setting(
        0,
        "hostmgr",
        "port of the host manager at which pods [report latencies](host-advisor.md#services); 0: none",
        low=0,
        high=PORT_MAX,
    )
    p95_orange_ms: int = setting(
        0,
        "hostmgr",
        "milliseconds of p95 from which on a service is marked orange, if its job does not say; 0: it is not, by p95",
        low=0,
        high=3_600_000,
    )
    p95_red_ms: int = setting(0, "hostmgr", "the same for red", low=0, high=3_600_000)
    p99_orange_ms: int = setting(
        0,
        "hostmgr",
        "milliseconds of p99 from which on a service is marked orange, if its job does not say; 0: it is not, by p99",
        low=0,
        high=3_600_000,
    )
    p99_red_ms: int = setting(0, "hostmgr", "the same for red", low=0, high=3_600_000)
    agents_period_s: float = setting(
        10.0,
        "hostmgr",
        "seconds between polls of Mesos's agents and their slack; at least 20 times as long as a poll takes",
        low=0.1,
        high=3_600,
    )
    agent_reregister_timeout_s: float = setting(
        600.0,
        "hostmgr",
        "seconds that agents have to re-register with a new Mesos master before their pods are LOST; Mesos's own "
        "`--agent_reregister_timeout`. See [Mesos](operations.md#mesos)",
        low=0,
        high=WEEK_S,
    )
    pod_placement_timeout_s: float = setting(
        600.0,
        SERVERS,
        "seconds in which a host is found for an admitted pod that is not in a gang, or it releases its allocation "
        "and is requeued; half as long after each such try, at least 10",
        low=1,
        high=WEEK_S,
    )
    offer_hold_s: float = setting(
        10.0,
        "hostmgr",
        "seconds after which offers that no launch has used go back to Mesos, for other frameworks. See "
        "[Mesos](operations.md#mesos)",
        low=0.1,
        high=3_600,
    )
    gang_placement_timeout_s: float = setting(
        600.0,
        SERVERS,
        "seconds in which hosts for all of an admitted gang are found, or it releases its allocation and is "
        "requeued; half as long after each failed launch, at least 10",
        low=1,
        high=WEEK_S,
    )
    gang_launch_timeout_s: float = setting(
        300.0,
        SERVERS,
        "seconds in which all of a launched gang runs, or all of it ends and is queued again. Both hold for jobs "
        "that are started from then on",
        low=1,
        high=WEEK_S,
    )
    retry_wait_s: int = setting(
        10,
        SERVERS,
        "seconds that a failed batch pod waits at first, from the start of its run, if no other host could take it, "
        "or at its third failure within 10 s of a start; 0: it never waits",
        low=0,
        high=WEEK_S,
    )
    retry_wait_max_s: int = setting(
        600, SERVERS, "seconds beyond which that time is not doubled with each further failure", low=0, high=WEEK_S
    )
    host_lease_s: float = setting(30.0, "hostmgr", "seconds for which a placement may hold hosts", low=1, high=3_600)
    host_pools: bool = setting(
        False,
        "hostmgr",
        "whether hosts are partitioned into [host pools](host-pools.md); the same for all host managers",
    )
    history_period_s: int = setting(
        60,
        "resmgr",
        "seconds between samples of the [time series](operations.md#time-series) of pools and clusters; they divide "
        "a minute; 0: none are recorded",
        low=0,
        high=60,
    )
    mover_period_s: float = setting(
        10.0,
        "resmgr",
        "seconds between decisions of the [mover of host pools](host-pools.md#the-mover), while it is on",
        low=0.1,
        high=DAY_S,
    )
    mover_high_percent: int = setting(
        80, "resmgr", "percent of its hosts in use above which a host pool takes hosts", low=1, high=100
    )
    mover_target_percent: int = setting(
        65, "resmgr", "percent to which it takes hosts, and below which it gives them back", low=1, high=100
    )
    mover_marked_percent: int = setting(
        30,
        "resmgr",
        "percent of its hosts [marked](host-advisor.md) orange or red above which it takes hosts",
        low=0,
        high=100,
    )
    mover_take_after_s: float = setting(
        60.0, "resmgr", "seconds for which it must have lacked hosts", low=0, high=WEEK_S
    )
    mover_take_after_urgent_s: float = setting(
        15.0, "resmgr", "the same while pods wait for hosts, or a host or a service is marked red", low=0, high=WEEK_S
    )
    mover_return_after_s: float = setting(
        900.0,
        "resmgr",
        "seconds for which it must have had hosts to spare, at first; twice as long each time that it turns out to "
        "have been too short",
        low=0.1,
        high=WEEK_S,
    )
    mover_return_after_max_s: float = setting(
        14_400.0, "resmgr", "seconds beyond which that time is not doubled", low=0.1, high=WEEK_S
    )
    mover_settle_s: float = setting(
        120.0, "resmgr", "seconds after one decision for a host pool before the next one", low=0, high=WEEK_S
    )
    mover_hosts_at_a_time: int = setting(5, "resmgr", "hosts that one decision moves at most", low=1, high=1_000)
    mover_hosts_per_hour: int = setting(
        30, "resmgr", "hosts that a host pool takes and returns in an hour at most; up to 1,000", low=1, high=1_000
    )
    mover_give_up_s: float = setting(
        3600.0,
        "resmgr",
        "seconds after which a host that the mover moves, and that is not empty yet, stays where it is",
        low=0.1,
        high=WEEK_S,
    )
    host_reservation_after_s: float = setting(
        120.0,
        "hostmgr",
        "seconds after which a [host is reserved](placement.md#reserved-hosts) for an admitted pod that is not in a "
        "gang and fits on none now",
        low=0,
        high=WEEK_S,
    )
    host_reservation_s: float = setting(
        1800.0,
        "hostmgr",
        "seconds after which such a host is released at the latest; 0: none is reserved",
        low=0,
        high=WEEK_S,
    )
    maintenance_share: float = setting(
        0.1,
        "hostmgr",
        "share of the hosts that may be draining or down for maintenance at a time; at least one host may",
        low=0,
        high=1,
    )
    maintenance_deadline_s: int = setting(
        3600,
        "hostmgr",
        "seconds after which the drain of a host may be forced, unless the call says otherwise",
        low=0,
        high=WEEK_S,
    )
    prefetch_url: str = setting(
        "",
        "hostmgr",
        "URL that has hosts fetch images ahead of an update in place, `http://HOST:PORT/PATH`; empty: hosts fetch "
        "images when pods start, and nodes of Kubernetes ahead by pods. See [images](operations.md#images)",
        form=URL,
    )
    pods_api: str = setting("", "hostmgr", "the API for pods of [gangs](frameworks/discovery.md); empty: none")
    jobs_paced: int = setting(
        100,
        "api worker",
        "number of unstarted jobs from which on calls that submit more are delayed, up to 5 s. See "
        "[back-pressure](operations.md#back-pressure)",
        low=1,
        high=1_000_000_000,
    )
    jobs_waiting_max: int = setting(
        10_000, "api worker", "calls that submit work are refused", low=1, high=1_000_000_000
    )
    jobs_active_max: int = setting(
        100_000,
        "api worker",
        "number of jobs that have not ended above which new jobs are rejected",
        low=1,
        high=1_000_000_000,
    )
    pods_active_max: int = setting(
        2_000_000,
        "api worker",
        "number of pods of jobs that have not ended above which new jobs are rejected",
        low=1,
        high=1_000_000_000,
    )
    otlp: str = setting(
        "",
        ALL,
        "OTLP gRPC endpoint for metrics, such as `http://collector:4317`; empty: none are exported",
        form=ENDPOINT,
    )
    health_file: str = setting(
        "",
        ALL,
        "file in which the process states its [health](operations.md#health) every two seconds; empty: none",
    )
    log_level: str = setting(
        "INFO", ALL, "DEBUG, INFO, WARNING or ERROR", form=one_of("DEBUG", "INFO", "WARNING", "ERROR")
    )

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
    Together(("retry_wait_s", "retry_wait_max_s"), is_ascending, "the first no more than the second"),
    Together(("mover_target_percent", "mover_high_percent"), is_less, "the first less than the second"),
    Together(("mover_take_after_urgent_s", "mover_take_after_s"), is_ascending, "the first no more than the second"),
    Together(("mover_return_after_s", "mover_return_after_max_s"), is_ascending, "the first no more than the second"),
    Together(("mover_hosts_at_a_time", "mover_hosts_per_hour"), is_ascending, "the first no more than the second"),
)
