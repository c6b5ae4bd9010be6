"""Protection against requests that a web page makes a browser send.

A server on the loopback address trusts its machine, but every page that a browser shows there can send requests too.
The Host header shows foreign names that resolve to this address, the Origin header shows foreign pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from ipaddress import ip_address

_ANSWERS_MAX = 256
"""Limit of the pairs of Host and Origin whose results are cached: a client sends the same pair with each request."""


class Guard:
    def __init__(self, listens_on: str, more: Iterable[str] = ()) -> None:
        """Take ``listens_on``, an address, possibly of all interfaces; and ``more`` names that clients may use
        for it."""
        self._names = {"localhost", *(name.lower() for name in (listens_on, *more))}
        self._is_everywhere = _is_unspecified(listens_on)
        self._fault = lru_cache(maxsize=_ANSWERS_MAX)(self._find_fault)

    def fault(self, headers: Mapping[str, str]) -> str | None:
        """Return why a request is refused; None: it is allowed. Names of ``headers`` are lower case.

        Clients without a Host or an Origin are not browsers.
        """
        return self._fault(headers.get("host", ""), headers.get("origin"))

    def _find_fault(self, host: str, origin: str | None) -> str | None:
        if host and not self._is_own_name(_without_port(host)):
            return f"Host '{host}' is not served here: --allow-host allows more names than localhost"
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return f"Requests of pages from '{origin}' are refused"
        return None

    def _is_own_name(self, name: str) -> bool:
        if name in self._names or name.endswith(".localhost"):
            return True
        try:
            address = ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or self._is_everywhere


def body_fault(headers: Mapping[str, str]) -> str | None:
    """Return why a body is refused that has to be JSON: foreign pages may send forms and plain text without
    preflight."""
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
