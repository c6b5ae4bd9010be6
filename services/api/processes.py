"""Private service of roles without a database: their reports, which the doctor compares with those of others."""

from __future__ import annotations

import time
from typing import Any

from peloton.api.private import processes_pb2 as pb
from peloton.errors import InvalidArgument
from peloton.model.diagnosis import ProcessRecord
from peloton.model.text import quote
from services.api.calls import Calls
from services.storage.processes import Processes as Records

NAME = "peloton.private.processes.Processes"
ROLES = ("web", "aurorabridge", "web+aurorabridge")
NAME_CHARS_MAX = 300
SETTINGS_MAX = 50
VALUE_CHARS_MAX = 2_000


class Processes:
    def __init__(self, records: Records, calls: Calls) -> None:
        self._records, self._calls = records, calls

    async def Announce(self, request: pb.AnnounceRequest, context: Any) -> pb.AnnounceResponse:
        _check(request)
        if request.is_ending:
            await self._calls.run(self._records.remove, request.process, request.role)
        else:
            process = ProcessRecord(request.process, request.role, request.version, dict(request.settings))
            await self._calls.run(self._records.announce, process, time.time_ns())
        return pb.AnnounceResponse()


def _check(request: pb.AnnounceRequest) -> None:
    """Raise InvalidArgument for a report that no role makes."""
    if request.role not in ROLES:
        raise InvalidArgument(f"role {quote(request.role)} does not announce itself: want one of {', '.join(ROLES)}")
    if len(request.settings) > SETTINGS_MAX:
        raise InvalidArgument(f"a process announces {len(request.settings):,} settings, at most {SETTINGS_MAX}")
    names = [request.process, request.version, *request.settings]
    if not request.process or any(len(name) > NAME_CHARS_MAX or "\0" in name for name in names):
        raise InvalidArgument(f"process, version and names of settings have 1 to {NAME_CHARS_MAX} characters, no NUL")
    if any(len(value) > VALUE_CHARS_MAX for value in request.settings.values()):
        raise InvalidArgument(f"a value of a setting has at most {VALUE_CHARS_MAX:,} characters")
