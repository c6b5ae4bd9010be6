"""REST interface: handles requests for objects and collections of every resource."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from services.lab.kubernetes import discovery, patches, scale
from services.lab.kubernetes.answers import answer, json_answer, refusal, success, text_answer
from services.lab.kubernetes.errors import ApiError, bad_request, method_not_allowed
from services.lab.kubernetes.lists import Lists
from services.lab.kubernetes.registry import Registry
from services.lab.kubernetes.requests import (
    Target,
    accepts_json,
    check_kind,
    delete_options,
    is_true,
    media_type,
    object_of,
    query_of,
    target_of,
)
from services.lab.kubernetes.resources import Json, Resource
from services.lab.kubernetes.store import Entry
from services.lab.kubernetes.tables import table_of
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
                raise ApiError(406, "NotAcceptable", "only the following media types are accepted: application/json")
            page = discovery.page(request.path)
            if page is not None:
                return json_answer(200, page)
            if not request.path.startswith(("/api/", "/apis/")):
                return text_answer(404, "404 page not found\n")
            return self._handle_objects(request)
        except ApiError as error:
            return refusal(error)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # Writes are atomic: a body of another form than that of its kind has changed nothing.
            return refusal(bad_request(f"the body has not the form of its kind: {error!r}"))

    def _handle_objects(self, request: Request) -> bytes | None:
        target, query = target_of(request.path), query_of(request.query)
        method, resource = request.method, target.resource
        if query.get("dryRun"):
            raise bad_request("this apiserver has no dry runs")
        if target.subresource == "scale":
            return self._scale(request, target)
        if target.subresource not in ("", "status"):
            handler = self.subresources.get((method, target.subresource))
            if handler is None:
                raise method_not_allowed()
            return handler(request, target, query)
        if method == "GET":
            return self._read(request, target, query)
        if method == "POST" and not target.name and (target.namespace or not resource.namespaced):
            body = check_kind(object_of(request), resource)
            return answer(201, self._registry.create(resource, target.namespace, body).encoded)
        if method == "DELETE" and not target.subresource:
            return self._delete(request, target, query)
        if target.name and method == "PUT":
            write = self._registry.update_status if target.subresource else self._registry.update
            body = check_kind(object_of(request), resource)
            return answer(200, write(resource, target.namespace, target.name, body).encoded)
        if target.name and method == "PATCH":
            change = patches.change_of(media_type(request), request.body)
            where = (resource, target.namespace, target.name)
            return answer(200, self._registry.patch(*where, change, bool(target.subresource)).encoded)
        raise method_not_allowed()

    def _read(self, request: Request, target: Target, query: dict[str, str]) -> bytes | None:
        resource, accept = target.resource, request.headers.get("accept", "")
        if is_true(query, "watch") and not target.subresource:
            self._watches.serve(request, resource, target.namespace, target.name, query)
            return None
        if target.name:
            body = self._registry.read(resource, target.namespace, target.name)
            table = table_of(accept, resource, query)
            return json_answer(200, body if table is None else table.rows([body], {}))
        page = self._lists.page(resource, target.namespace, query)
        metadata: Json = {"resourceVersion": str(page.version)}
        if page.token:
            metadata["continue"] = page.token
            if page.remaining is not None:
                metadata["remainingItemCount"] = page.remaining
        if (table := table_of(accept, resource, query)) is not None:
            return json_answer(200, table.rows([entry.body for entry in page.entries], metadata))
        return answer(200, _list(resource, metadata, page.entries))

    def _scale(self, request: Request, target: Target) -> bytes:
        """Read or change the number of replicas of a Deployment."""
        where = (target.resource, target.namespace, target.name)
        body = self._registry.read(*where)
        if request.method == "GET":
            return json_answer(200, scale.scale_of(body))
        if request.method == "PUT":
            wanted = object_of(request)
        elif request.method == "PATCH":
            wanted = patches.change_of(media_type(request), request.body)(scale.scale_of(body))
        else:
            raise method_not_allowed()
        return json_answer(
            200, scale.scale_of(self._registry.update(*where, scale.scale_deployment(body, wanted)).body)
        )

    def _delete(self, request: Request, target: Target, query: dict[str, str]) -> bytes:
        resource = target.resource
        options = delete_options(object_of(request) if request.body else {}, query)
        if target.name:
            entry, is_gone = self._registry.delete(resource, target.namespace, target.name, options)
            if resource.plural in _ANSWERS_DELETED or not is_gone:
                return answer(200, entry.encoded)
            details: Json = {"name": target.name, "kind": resource.plural, "uid": entry.body["metadata"]["uid"]}
            if resource.group:
                details["group"] = resource.group
            return json_answer(200, success(200, details))
        if resource.namespaced and not target.namespace:
            raise method_not_allowed()
        page = self._lists.page(resource, target.namespace, {**query, "resourceVersion": "", "continue": ""})
        names = [entry.body["metadata"]["name"] for entry in page.entries]
        deleted = [self._registry.delete(resource, target.namespace, name, options)[0] for name in names]
        return answer(200, _list(resource, {"resourceVersion": str(self._store.version)}, deleted))


def _list(resource: Resource, metadata: Json, entries: list[Entry]) -> bytes:
    """Return a list. Its members have no kind, which the list has instead."""
    head = orjson.dumps({"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata})
    length = len(orjson.dumps(resource.head))
    items = b",".join([b"{" + entry.encoded[length:] for entry in entries])
    return b'%s,"items":[%s]}' % (head[:-1], items)
