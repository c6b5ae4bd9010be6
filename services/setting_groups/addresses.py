"""Settings of the addresses and ports of roles."""

from __future__ import annotations

from dataclasses import dataclass

from services.setting_rules import ADDRESSES, PORT_MAX, WORD, setting


@dataclass(frozen=True)
class AddressesSettings:
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
