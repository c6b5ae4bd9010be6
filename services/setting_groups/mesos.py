"""Settings of the Mesos driver."""

from __future__ import annotations

from dataclasses import dataclass

from services.setting_rules import AGENTS, MASTER, WEEK_S, WORD, setting


@dataclass(frozen=True)
class MesosSettings:
    mesos: str = setting(
        "localhost:5050", "hostmgr", "Mesos master: `host:port`, or `zk://HOST:PORT,HOST:PORT/PATH`", form=MASTER
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
    offer_hold_s: float = setting(
        10.0,
        "hostmgr",
        "seconds after which offers that no launch has used go back to Mesos, for other frameworks. See "
        "[Mesos](operations.md#mesos)",
        low=0.1,
        high=3_600,
    )
