"""Settings of leader election."""

from __future__ import annotations

from dataclasses import dataclass

from services.setting_rules import SERVERS, ZOOKEEPER, one_of, setting


@dataclass(frozen=True)
class LeadershipSettings:
    election: str = setting(
        "database",
        SERVERS,
        "where leaders are elected and found: `database`, or [`zookeeper`](operations.md#leaders-and-standbys)",
        form=one_of("database", "zookeeper"),
    )
    zookeeper: str = setting(
        "",
        SERVERS,
        "node of ZooKeeper below which leaders are elected: `zk://HOST:PORT,HOST:PORT/PATH`",
        form=ZOOKEEPER,
    )
    zookeeper_auth_file: str = setting(
        "",
        SERVERS,
        "file with `user:password` in one line, by which the nodes are changed (scheme digest); empty: they are open",
    )
    zookeeper_tls: bool = setting(False, SERVERS, "whether ZooKeeper speaks TLS")
    zookeeper_tls_ca_file: str = setting(
        "", SERVERS, "PEM file of the authorities whose certificates are trusted; empty: those of this machine"
    )
    zookeeper_tls_cert_file: str = setting("", SERVERS, "PEM file of the certificate that is shown to ZooKeeper")
    zookeeper_tls_key_file: str = setting("", SERVERS, "PEM file of its key; empty: it is in the same file")
    leader_ttl_s: float = setting(5.0, SERVERS, "seconds after which a silent leader is replaced", low=0.5, high=3_600)
