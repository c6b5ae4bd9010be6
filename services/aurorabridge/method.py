"""The contract of a method: how it is called, how it answers and how it refuses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from services.aurorabridge.backend import Backend
from services.aurorabridge.thrift import api

Method = Callable[[Backend, Any], Awaitable[Any]]
"""Method of Aurora's API: takes the api's client and the struct of the arguments (``api.<Service>.<method>_args``) and
returns an ``api.Result``. Raises Refusal, and the errors of gRPC, which become ERROR with their text.
"""


class Refusal(Exception):
    """Refusal of a call, with its response code (``api.ResponseCode``) and the text that the client reads."""

    def __init__(self, text: str, code: int = api.ResponseCode.ERROR) -> None:
        super().__init__(text)
        self.code = code


def empty_result() -> Any:
    """Return the result of methods that have none: clients require one, and the original sends one of tiers."""
    return api.Result(getTierConfigResult=api.GetTierConfigResult())
