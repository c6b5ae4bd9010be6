"""The caller of the request that this task answers."""

from __future__ import annotations

from contextvars import ContextVar

from peloton.access.caller import EVERYTHING, Caller

CALLER: ContextVar[Caller] = ContextVar("CALLER", default=EVERYTHING)
"""Set by the interceptor of the api. Without credentials in the settings it stays the default."""

CERTIFICATE = "certificate"
"""Issuer of a caller whose name is the SPIFFE id of its certificate."""
