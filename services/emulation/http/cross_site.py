"""Which requests are refused because a web page made a browser send them.

A server on the loopback address trusts its machine, but every page that a browser shows there can send requests too.
The Host header shows foreign names that resolve to this address, the Origin header shows foreign pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from ipaddress import ip_address

_ANSWERS_MAX = 256
"""Pairs of Host and Origin whose answers are kept: a client sends the same pair with each of its requests."""


class Guard:
    def __init__(self, listens_on: str, more: Iterable[str] = ()) -> None:
        """``listens_on``: an address, of all interfaces too; ``more``: names by which clients may ask for us."""
        self._names = {"localhost", *(name.lower() for name in (listens_on, *more))}
        self._is_everywhere = _is_unspecified(listens_on)
        self._fault = lru_cache(maxsize=_ANSWERS_MAX)(self._judge)

    def fault(self, headers: Mapping[str, str]) -> str | None:
        """Names of ``headers`` are lower case. Clients without a Host or an Origin are no browsers."""
        return self._fault(headers.get("host", ""), headers.get("origin"))

    def _judge(self, host: str, origin: str | None) -> str | None:
        if host and not self._is_ours(_without_port(host)):
            return f"Host '{host}' is not served here: --allow-host allows more names than localhost"
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return f"Requests of pages from '{origin}' are refused"
        return None

    def _is_ours(self, name: str) -> bool:
        if name in self._names or name.endswith(".localhost"):
            return True
        try:
            address = ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or self._is_everywhere


def body_fault(headers: Mapping[str, str]) -> str | None:
    """Of a body that has to be JSON: pages of others may send forms and plain text without asking first."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    return None if kind == "application/json" else f"Expecting 'Content-Type' of application/json, not '{kind}'"


def _is_unspecified(address: str) -> bool:
    try:
        return ip_address(address).is_unspecified
    except ValueError:
        return False


def _without_port(host: str) -> str:
    name, _, port = host.lower().rpartition(":")
    if not name or not (port.isdigit() or not port) or (":" in name and not name.endswith("]")):
        name = host.lower()
    return name.removeprefix("[").removesuffix("]").removesuffix(".")
