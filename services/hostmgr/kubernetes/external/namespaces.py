"""Terms that a namespace sets for its external pods: their pool, and how long admitted ones may be without a node."""

from __future__ import annotations

import time
from typing import NamedTuple

from services.hostmgr.kubernetes.apiserver.wire import ApiServer, Json, Request
from services.hostmgr.kubernetes.external.external_specs import Refused, pool_named, read_number

ADMISSION_TIMEOUT = "peloton.io/admission-timeout-s"
"""Label or annotation of a namespace: its own bound instead of the setting's."""
TIMEOUT_MAX_S = 604_800
"""A week, which is the limit of the setting, too."""
AGE_S = 30.0
"""Maximum age in seconds of the cached terms of a namespace."""
NAMESPACES_MAX = 10_000
"""Limit of cached namespaces."""


class NamespaceTerms(NamedTuple):
    pool: str = ""
    timeout_s: float = 0.0  # 0: that of the setting
    refusal: str = ""  # why the terms cannot be read


NO_TERMS = NamespaceTerms()


def read_terms(namespace: Json) -> NamespaceTerms:
    meta = namespace["metadata"]
    try:
        timeout_s = read_number(meta, ADMISSION_TIMEOUT, 1, TIMEOUT_MAX_S, 0)
    except Refused as refused:
        return NamespaceTerms(pool_named(namespace), refusal=f"namespace {meta['name']}: {refused}")
    return NamespaceTerms(pool_named(namespace), timeout_s)


class Namespaces:
    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._known: dict[str, tuple[float, NamespaceTerms]] = {}  # time of the read

    def terms_of(self, name: str) -> NamespaceTerms:
        """Return the terms, as read within the last seconds. Raises OSError."""
        read_s, terms = self._known.get(name, (float("-inf"), NO_TERMS))
        now_s = time.monotonic()
        if now_s - read_s > AGE_S:
            answer = self._api.ask(Request("GET", f"/api/v1/namespaces/{name}"))
            if answer.may_pass:
                raise OSError(f"namespace {name} cannot be read: {answer.message}")
            terms = read_terms(answer.json()) if answer.is_ok else NO_TERMS
            if len(self._known) >= NAMESPACES_MAX:
                self._known.clear()
            self._known[name] = (now_s, terms)
        return terms
