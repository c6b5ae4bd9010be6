"""Settings of host managers for any kind of cluster: QoS, marks, maintenance, images."""

from __future__ import annotations

from dataclasses import dataclass

from services.setting_rules import CLUSTER, DAY_S, PORT_MAX, URL, WEEK_S, setting


@dataclass(frozen=True)
class HostsSettings:
    cluster: str = setting(
        "local",
        "api resmgr hostmgr",
        "name of the cluster that this host manager runs, see [several clusters](operations.md#several-clusters). "
        "Its pods, hosts and framework id are stored under it: never change it",
        form=CLUSTER,
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
