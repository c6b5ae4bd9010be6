"""Interceptor of the api that redacts answers and refusals for callers who may not read all pools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

from peloton.access.caller import Caller
from peloton.access.rules import MethodRule, Needs
from peloton.api import error_details
from peloton.api.error_details import Trailing
from peloton.api.service_names import BULK_SERVICE, JOB_MANAGER, JOB_SERVICE
from peloton.errors import PelotonError
from services.access.access import Access
from services.access.caller import CALLER
from services.access.methods import answer_class, first_name
from services.access.pools import PoolFinder
from services.access.redaction import find_ids, read_job_names, redact, redact_text
from services.access.visible import is_in, readable_paths
from services.servers.grpc_handlers import MAKERS, AroundCalls

AT_ONCE_BYTES_MAX = 256 * 2**10
"""Size of an answer above which it is searched in a thread."""
_CREATIONS = frozenset({f"{JOB_MANAGER[0]}/Create", f"{BULK_SERVICE[0]}/CreateJob", f"{JOB_SERVICE[0]}/CreateJob"})
RedactRefusal = Callable[[str, Trailing], Awaitable[tuple[str, Trailing]]]


class Redact(AroundCalls):
    """Redacts what the methods inside of it answer. Refusals repeat the ids that the request itself has."""

    def __init__(self, access: Access | None, rules: Mapping[str, MethodRule], pools: PoolFinder) -> None:
        self._access, self._rules, self._pools = access, rules, pools

    def wrap(self, method: str, handler: Any) -> Any:
        rule = self._rules.get(method)
        if self._access is None or rule is None or rule.needs is not Needs.ROLE:
            return handler
        call = _Redacted(method, self._pools)
        behaviour = handler.unary_unary or handler.stream_unary or handler.unary_stream or handler.stream_stream
        does = call.streaming(behaviour) if handler.response_streaming else call.answering(behaviour)
        make = MAKERS[handler.request_streaming, handler.response_streaming]
        return make(does, handler.request_deserializer, _write_once(handler.response_serializer))


class _Refusing:
    """Context of a call that redacts the refusals which its method sends by itself: those of other roles, passed on."""

    def __init__(self, context: Any, redact_refusal: RedactRefusal) -> None:
        self._context, self._redact_refusal = context, redact_refusal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def abort(self, code: Any, details: str = "", trailing_metadata: Trailing = ()) -> None:
        await self._context.abort(code, *await self._redact_refusal(details, tuple(trailing_metadata)))


class _Redacted:
    """One method whose answers are redacted."""

    def __init__(self, method: str, pools: PoolFinder) -> None:
        self._method, self._pools, self._creates = method, pools, first_name(method) in _CREATIONS

    def answering(self, behaviour: Any) -> Any:
        async def answer(request: Any, context: Any) -> Any:
            caller = CALLER.get()
            if readable_paths(caller) is None:
                return await behaviour(request, context)
            try:
                found = await behaviour(request, self._refusing(context, caller, request))
            except PelotonError as error:
                await self._redact_error(error, caller, request)
                raise
            return await self._redact(found, caller)

        return answer

    def streaming(self, behaviour: Any) -> Any:
        async def stream(request: Any, context: Any) -> AsyncGenerator[Any, None]:
            caller = CALLER.get()
            is_limited = readable_paths(caller) is not None
            seen = self._refusing(context, caller, request) if is_limited else context
            try:
                async with aclosing(behaviour(request, seen)) as answers:
                    async for found in answers:
                        yield await self._redact(found, caller) if is_limited else found
            except PelotonError as error:
                if is_limited:
                    await self._redact_error(error, caller, request)
                raise

        return stream

    async def _redact(self, found: Any, caller: Caller) -> Any:
        """Return the answer, encoded."""
        content = found if isinstance(found, bytes) else found.SerializeToString()
        is_large = len(content) > AT_ONCE_BYTES_MAX
        ids = await asyncio.to_thread(find_ids, content) if is_large else find_ids(content)
        if not ids - self._read_created(found):
            return content
        hidden, known = await self._find_hidden(ids, caller)
        message = answer_class(self._method).FromString(content) if isinstance(found, bytes) else found
        hidden |= set(read_job_names(message)) - known  # jobs that have been deleted since
        if not hidden:
            return content
        redact(message, hidden)
        return message.SerializeToString()

    def _read_created(self, found: Any) -> set[str]:
        """Return the id of the job that the call has created, in a pool that the caller was asked about."""
        if not self._creates or isinstance(found, bytes) or ("error" in _fields_of(found) and found.HasField("error")):
            return set()
        return {getattr(found, name).value for name in ("jobId", "job_id") if name in _fields_of(found)}

    def _refusing(self, context: Any, caller: Caller, request: Any) -> _Refusing:
        return _Refusing(context, partial(self._redact_refusal, caller, request))

    async def _redact_error(self, error: PelotonError, caller: Caller, request: Any) -> None:
        """Redact a refusal of the api itself."""
        hidden = await self._hidden_in([error.message, *error.metadata.values()], caller, request)
        if hidden:
            error.message = redact_text(error.message, hidden)
            error.metadata = {key: redact_text(text, hidden) for key, text in error.metadata.items()}
            error.args = (error.message,)

    async def _redact_refusal(
        self, caller: Caller, request: Any, text: str, trailing: Trailing
    ) -> tuple[str, Trailing]:
        """Return the text and the trailing metadata of a refusal of another role, redacted."""
        hidden = await self._hidden_in([text, *error_details.list_texts(trailing)], caller, request)
        if not hidden:
            return text, trailing
        return redact_text(text, hidden), error_details.rewrite(trailing, lambda found: redact_text(found, hidden))

    async def _hidden_in(self, texts: Iterable[str], caller: Caller, request: Any) -> set[str]:
        """Return the ids of jobs in a refusal that the caller may not read and has not sent."""
        ids = find_ids("\n".join(texts).encode(errors="surrogatepass"))
        return (await self._find_hidden(ids, caller))[0] - _ids_in(request) if ids else set()

    async def _find_hidden(self, ids: set[str], caller: Caller) -> tuple[set[str], set[str]]:
        """Return the ids of jobs that the caller may not read, and of all jobs that exist."""
        paths = await self._pools.paths_of_jobs(sorted(ids))
        readable = readable_paths(caller)
        hidden: set[str] = {job_id for job_id, path in paths.items() if not is_in(path, readable)}
        known: set[str] = {str(job_id) for job_id in paths}
        return hidden, known


def _fields_of(message: Any) -> Any:
    return message.DESCRIPTOR.fields_by_name


def _ids_in(request: Any) -> set[str]:
    if hasattr(request, "__aiter__"):
        return set()
    return find_ids(request if isinstance(request, bytes) else request.SerializeToString())


def _write_once(serializer: Any) -> Any:
    """Return a serializer that takes answers which are encoded already."""
    if serializer is None:
        return None
    return lambda answer: answer if isinstance(answer, bytes) else serializer(answer)
