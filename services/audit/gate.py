"""Interceptors of the api that record calls in the audit log: changes and refusals always, reads by setting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc.aio

from peloton.access.audit import OK, REASON_CHARS_MAX, Draft, clean
from peloton.access.caller import Caller, CallerKind, Role
from peloton.access.rules import MethodRule, Needs
from peloton.errors import Internal, PelotonError, PermissionDenied, Unauthenticated
from services.access.caller import CALLER, CLIENT_OF_ROLE
from services.audit.facts import digest_of, join, name_objects, result_of
from services.audit.recorder import Recorder
from services.servers.grpc_handlers import AroundCalls, within

DIGEST_AT_ONCE_BYTES_MAX = 2**20
_UNIDENTIFIED = Caller("", CallerKind.ANONYMOUS)
_CODES = {code.value[0]: code.name for code in grpc.StatusCode}
_BEGUN = "BEGUN"
_READ_OF_LOG = "peloton.api.v0.audit.AuditService/Query"
_SIGN_INS = frozenset(f"peloton.api.v0.access.AccessService/{name}" for name in ("SignIn", "SignOut"))


class AuditUnidentified(AroundCalls):
    """Records calls whose credentials are refused; outside of the interceptor that identifies callers."""

    def __init__(self, recorder: Recorder | None) -> None:
        self._recorder = recorder

    def wrap(self, method: str, handler: Any) -> Any:
        if self._recorder is None:
            return handler
        recorder = self._recorder

        @asynccontextmanager
        async def around(request: Any, context: Any) -> AsyncIterator[Any]:
            CALLER.set(_UNIDENTIFIED)
            try:
                yield request
            except PelotonError as error:
                if CALLER.get() is _UNIDENTIFIED:
                    reason = clean(error.message, REASON_CHARS_MAX)
                    draft = recorder.draft(method.removeprefix("/"), error.code)
                    recorder.note_unidentified(replace(draft, peer=peer_of(context), reason=reason))
                raise

        return within(handler, around, handler.request_deserializer)


class Audit(AroundCalls):
    """Records calls of identified callers; outside of the interceptor that authorizes them."""

    def __init__(self, recorder: Recorder | None, rules: Mapping[str, MethodRule]) -> None:
        self._recorder, self._rules = recorder, rules

    def wrap(self, method: str, handler: Any) -> Any:
        rule = self._rules.get(method)
        if self._recorder is None or rule is None or rule.needs is Needs.PELOTON:
            return handler
        call = _Audited(self._recorder, method, rule)
        if handler.request_streaming or handler.response_streaming:
            return within(handler, call.stream, handler.request_deserializer)
        make: Any = grpc.unary_unary_rpc_method_handler
        return make(call.wrap_unary(handler.unary_unary), handler.request_deserializer, handler.response_serializer)


class _Audited:
    """One method whose calls are recorded."""

    def __init__(self, recorder: Recorder, method: str, rule: MethodRule) -> None:
        self._recorder, self._path, self._rule = recorder, method, rule
        self._changes = is_change(rule)
        self._is_sign_in = rule.method in _SIGN_INS
        self._is_noted = self._changes or (recorder.are_reads_noted and rule.needs is Needs.ROLE)

    def wrap_unary(self, behaviour: Any) -> Any:
        """Return the unary method with the recording of its calls."""

        async def answer(request: Any, context: Any) -> Any:
            if self._changes:
                self._recorder.check()
            is_noted = self._is_noted and not continues_command(request)
            is_noted = is_noted or (self._is_sign_in and not CALLER.get().is_anonymous)
            digest = await _digest(request) if is_noted else ""
            try:
                found = await behaviour(request, context)
            except BaseException as error:
                self._note_failure(error, request, context, digest, is_noted)
                raise
            if is_noted:
                result, reason, created = result_of(self._path, found)
                draft = replace(self._draft(result, request, context, created), reason=reason, digest=digest)
                await self._recorder.wait(self._recorder.note(draft, is_awaited=self._changes))
            return found

        return answer

    @asynccontextmanager
    async def stream(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Record a streaming call: its beginning, since it may last for long, and its end."""
        if self._changes:
            self._recorder.check()
        first: list[Any] = []
        is_of_stream = hasattr(request, "__aiter__")
        seen = aclosing(_keep_first(request, first)) if is_of_stream else None
        if not is_of_stream:
            first.append(request)
        try:
            if self._is_noted:
                began = self._draft(_BEGUN, first[0] if first else None, context)
                await self._recorder.wait(self._recorder.note(began, is_awaited=self._changes))
            if seen is None:
                yield request
            else:
                async with seen as requests:
                    yield requests
        except BaseException as error:
            self._note_failure(error, first[0] if first else None, context, "", self._is_noted)
            raise
        if self._is_noted:
            ended = self._draft(OK, first[0] if first else None, context)
            await self._recorder.wait(self._recorder.note(ended, is_awaited=self._changes))

    def _note_failure(self, error: BaseException, request: Any, context: Any, digest: str, is_noted: bool) -> None:
        if isinstance(error, GeneratorExit) or not (is_noted or isinstance(error, (PermissionDenied, Unauthenticated))):
            return
        code, text = _failure(error, context)
        draft = replace(self._draft(code, request, context), reason=clean(text, REASON_CHARS_MAX), digest=digest)
        is_unknown = isinstance(error, Unauthenticated) and CALLER.get().is_anonymous
        (self._recorder.note_unidentified if is_unknown else self._recorder.note)(draft)

    def _draft(self, result: str, request: Any, context: Any, created: str = "") -> Draft:
        caller = CALLER.get()
        named = name_objects(self._rule, self._path, request) if request is not None else ""
        return replace(
            self._recorder.draft(self._rule.method, result),
            caller=clean(caller.name),
            kind=str(caller.kind),
            issuer=clean(caller.issuer),
            via=clean(caller.via),
            token_id=clean(caller.token_id),
            peer=peer_of(context),
            object=join([each for each in (created, named) if each]),
        )


def peer_of(context: Any) -> str:
    """Return the address of the peer; for a call by the pages or the bridge, of their client via the peer."""
    client, peer = CLIENT_OF_ROLE.get(), context.peer()
    return clean(f"{client} via {peer}" if client else peer)


def is_change(rule: MethodRule) -> bool:
    """Return whether calls of a method are always recorded: all but reads."""
    return rule.needs is Needs.ROLE and rule.role is not Role.READER and rule.method != _READ_OF_LOG


def continues_command(request: Any) -> bool:
    """Return whether a call continues a command in a pod, whose first call has been recorded."""
    return bool(getattr(request, "number", 0)) and hasattr(request, "pod_name")


async def _digest(request: Any) -> str:
    size_bytes = len(request) if isinstance(request, bytes) else request.ByteSize()
    if size_bytes > DIGEST_AT_ONCE_BYTES_MAX:
        return await asyncio.to_thread(digest_of, request)
    return digest_of(request)


async def _keep_first(requests: AsyncIterator[Any], first: list[Any]) -> AsyncGenerator[Any, None]:
    async for request in requests:
        if not first:
            first.append(request)
        yield request


def _failure(error: BaseException, context: Any) -> tuple[str, str]:
    """Return the code and the text of a failed call."""
    if isinstance(error, PelotonError):
        return error.code, error.message
    if isinstance(error, asyncio.CancelledError):
        return "CANCELLED", "the caller did not wait for the answer"
    code = context.code()
    name = code.name if isinstance(code, grpc.StatusCode) else _CODES.get(code, Internal.code)
    return name, str(context.details() or "") if isinstance(error, grpc.aio.AbortError) else type(error).__name__
