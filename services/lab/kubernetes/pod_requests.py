"""Subresources of pods for clients other than their owner: binding and eviction."""

from __future__ import annotations

from services.lab.kubernetes.answers import json_answer, success
from services.lab.kubernetes.bindings import bind
from services.lab.kubernetes.controllers.budgets import Budgets
from services.lab.kubernetes.errors import bad_request
from services.lab.kubernetes.evictions import evict
from services.lab.kubernetes.forms import EVICTION, check
from services.lab.kubernetes.registry import Registry
from services.lab.kubernetes.requests import Target, is_dry_run, object_of, options_of
from services.lab.shared.http.server import Request


class PodRequests:
    def __init__(self, registry: Registry, budgets: Budgets) -> None:
        self._registry = registry
        self._budgets = budgets

    def bind(self, request: Request, target: Target, query: dict[str, str]) -> bytes:
        body = object_of(request.body, request.headers.get("content-type", ""))
        bind(self._registry, target.namespace, target.name, body, is_dry_run(query))
        return json_answer(201, success(201))

    def evict(self, request: Request, target: Target, query: dict[str, str]) -> bytes:
        body = object_of(request.body, request.headers.get("content-type", ""))
        check("Eviction", body, EVICTION)
        if (body.get("metadata") or {}).get("name", target.name) != target.name:
            raise bad_request("name in URL does not match name in Eviction object")
        options = options_of(body.get("deleteOptions") or {}, query)
        evict(self._registry, self._budgets, target.namespace, target.name, options)
        return json_answer(201, success(201))
