"""REST interface: handles requests for objects and collections of every resource."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from services.lab.kubernetes import discovery, patches
from services.lab.kubernetes.answers import answer, json_answer, refusal, success, text_answer
from services.lab.kubernetes.errors import ApiError, method_not_allowed, no_such_path, not_found
from services.lab.kubernetes.event_forms import stored_form
from services.lab.kubernetes.lists import Lists
from services.lab.kubernetes.registry import Registry
from services.lab.kubernetes.requests import (
    Target,
    accepts_json,
    delete_options,
    described_as,
    is_dry_run,
    is_true,
    media_type,
    not_acceptable,
    object_of,
    query_of,
    target_of,
)
from services.lab.kubernetes.resources import PODS, Json, Resource
from services.lab.kubernetes.shapes import Shape, shape_of
from services.lab.kubernetes.store import Entry
from services.lab.kubernetes.watches import Watches
from services.lab.shared.http.server import Request

# Of one object of a resource: an answer, or None when it keeps the connection for a stream. Raises ApiError.
Subresource = Callable[[Request, Target, dict[str, str]], bytes | None]
_ANSWERS_DELETED = ("pods", "namespaces")
"""Resources whose DELETE is answered with the object; others are answered with a Status."""


class Rest:
    def __init__(self, registry: Registry, lists: Lists, watches: Watches) -> None:
        self._registry = registry
        self._store = registry.store
        self._lists = lists
        self._watches = watches
        self.subresources: dict[tuple[str, str], Subresource] = {}
        """Handlers of pods by method and subresource."""

    def handle(self, request: Request) -> bytes | None:
        if request.path == discovery.OLD_SCHEMAS:
            return answer(200, b"", discovery.OLD_SCHEMAS_TYPE)
        try:
            if not accepts_json(request.headers.get("accept", "")):
                raise not_acceptable()
            page = discovery.page(request.path)
            if page is not None:
                return json_answer(200, page)
            if not request.path.startswith(("/api/", "/apis/")):
                return text_answer(404, "404 page not found\n")
            return self._handle_objects(request)
        except ApiError as error:
            return refusal(error)

    def _handle_objects(self, request: Request) -> bytes | None:
        target, query = target_of(request.path), query_of(request.query)
        method = request.method
        if target.subresource not in ("", "status"):
            handler = self.subresources.get((method, target.subresource))
            if handler is None or target.resource is not PODS:
                raise method_not_allowed() if target.subresource in target.resource.subresources else no_such_path()
            return handler(request, target, query)
        if method == "GET":
            return self._read(request, target, query)
        if method == "POST" and not target.name and (target.namespace or not target.resource.namespaced):
            body = stored_form(target.resource, described_as(self._body(request), target.resource))
            entry = self._registry.create(target.resource, target.namespace, body, is_dry_run(query))
            return self._answer(request, target, 201, entry)
        if method == "DELETE" and not target.subresource:
            return self._delete(request, target, query)
        if target.name and method in ("PUT", "PATCH"):
            return self._put(request, target, query) if method == "PUT" else self._patch(request, target, query)
        raise method_not_allowed()

    def _body(self, request: Request) -> Json:
        return object_of(request.body, request.headers.get("content-type", ""))

    def _answer(self, request: Request, target: Target, status: int, entry: Entry) -> bytes:
        shape = shape_of(request.headers.get("accept", ""), target.resource, query_of(request.query))
        if shape is None:
            return answer(status, entry.encoded)
        return answer(status, orjson.dumps(shape.one(entry.body)), shape.content_type)

    # Reading

    def _read(self, request: Request, target: Target, query: dict[str, str]) -> bytes | None:
        resource = target.resource
        if target.is_watch or (is_true(query, "watch") and not target.subresource):
            shape = shape_of(request.headers.get("accept", ""), resource, query)
            self._watches.serve(request, resource, target.namespace, target.name, query, shape)
            return None
        if not target.name:
            return self._list(request, target, query)
        entry = self._store.get(resource.plural, target.namespace, target.name)
        if entry is None:
            raise not_found(resource, target.name)
        return self._answer(request, target, 200, entry)

    def _list(self, request: Request, target: Target, query: dict[str, str]) -> bytes:
        resource = target.resource
        page = self._lists.page(resource, target.namespace, query)
        metadata: Json = {"resourceVersion": str(page.version)}
        if page.token:
            metadata["continue"] = page.token
            if page.remaining is not None:
                metadata["remainingItemCount"] = page.remaining
        shape: Shape | None = shape_of(request.headers.get("accept", ""), resource, query)
        if shape is not None:
            many = shape.many([entry.body for entry in page.entries], metadata)
            return answer(200, orjson.dumps(many), shape.content_type)
        return answer(200, _list(resource, metadata, page.entries))

    # Writing

    def _put(self, request: Request, target: Target, query: dict[str, str]) -> bytes:
        body = stored_form(target.resource, described_as(self._body(request), target.resource))
        is_new = self._store.get(target.resource.plural, target.namespace, target.name) is None
        write = self._registry.update_status if target.subresource else self._registry.update
        entry = write(target.resource, target.namespace, target.name, body, is_dry_run(query))
        return self._answer(request, target, 201 if is_new else 200, entry)

    def _patch(self, request: Request, target: Target, query: dict[str, str]) -> bytes:
        change = patches.change_of(media_type(request.headers.get("content-type", "")), request.body)
        entry = self._registry.patch(
            target.resource, target.namespace, target.name, change, bool(target.subresource), is_dry_run(query)
        )
        return self._answer(request, target, 200, entry)

    def _delete(self, request: Request, target: Target, query: dict[str, str]) -> bytes:
        resource = target.resource
        options = delete_options(request.body, request.headers.get("content-type", ""), query)
        if target.name:
            entry, is_gone = self._registry.delete(resource, target.namespace, target.name, options)
            if resource.plural in _ANSWERS_DELETED or not is_gone:
                return self._answer(request, target, 200, entry)
            details: Json = {"name": target.name, "kind": resource.plural, "uid": entry.body["metadata"]["uid"]}
            if resource.group:
                details["group"] = resource.group
            return json_answer(200, success(200, details))
        if resource.namespaced and not target.namespace:
            raise method_not_allowed()
        page = self._lists.page(resource, target.namespace, {**query, "resourceVersion": "", "continue": ""})
        deleted = [
            self._registry.delete(resource, target.namespace, entry.body["metadata"]["name"], options)[0]
            for entry in page.entries
        ]
        return answer(200, _list(resource, {"resourceVersion": str(self._store.version)}, deleted))


def _list(resource: Resource, metadata: Json, entries: list[Entry]) -> bytes:
    """Return a list. Its members have no kind, which the list has instead."""
    head = orjson.dumps({"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata})
    length = len(orjson.dumps(resource.head))
    items = b",".join([b"{" + entry.encoded[length:] for entry in entries])
    return b'%s,"items":[%s]}' % (head[:-1], items)
