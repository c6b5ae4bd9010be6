"""Emulated apiserver: its store, its port, and its controllers, in one process on one event loop."""

from __future__ import annotations

import asyncio
import hmac
import logging
from pathlib import Path
from urllib.parse import unquote

from services.lab.kubernetes.answers import json_answer, refusal, text_answer
from services.lab.kubernetes.controllers.manager import ControllerManager
from services.lab.kubernetes.errors import ApiError, unauthorized
from services.lab.kubernetes.faults import FAULTS, NODES, Faults, handle_nodes
from services.lab.kubernetes.journal import Journal
from services.lab.kubernetes.kubeconfig import write_kubeconfig
from services.lab.kubernetes.lists import Lists
from services.lab.kubernetes.nodes.exec_requests import ExecRequests
from services.lab.kubernetes.nodes.log_requests import LogRequests
from services.lab.kubernetes.nodes.nodes import Nodes
from services.lab.kubernetes.nodes.scheduler import Scheduler
from services.lab.kubernetes.nodes.settings import NodeSettings
from services.lab.kubernetes.nodes.stats import PATH as STATS
from services.lab.kubernetes.nodes.stats import summary
from services.lab.kubernetes.pod_requests import PodRequests
from services.lab.kubernetes.registry import Registry
from services.lab.kubernetes.resources import NAMESPACES, NODE_LEASES
from services.lab.kubernetes.rest import Rest
from services.lab.kubernetes.settings import EmulatedKubernetesSettings
from services.lab.kubernetes.store import Store
from services.lab.kubernetes.watches import Watches
from services.lab.shared.clock import Clock
from services.lab.shared.http.cross_site import Guard
from services.lab.shared.http.server import HttpServer, Request

log = logging.getLogger(__name__)

FIRST_NAMESPACES = ("default", "kube-system", "kube-public", NODE_LEASES)
HEALTH = ("/healthz", "/livez", "/readyz")


class EmulatedKubernetes:
    """Server of the emulation. `start` returns when the port listens; `stop` ends all processes and connections."""

    def __init__(self, settings: EmulatedKubernetesSettings) -> None:
        self.settings = settings
        self.store = Store(Journal(settings.data_dir), settings.events_max)
        self.registry = Registry(self.store)
        self.clock = Clock()
        self.watches = Watches(self.store, settings.bookmark_s)
        self.lists = Lists(self.store)
        self.rest = Rest(self.registry, self.lists, self.watches)
        self.controllers = ControllerManager(self.registry, self.clock, settings.controllers)
        pods = PodRequests(self.registry)
        self.rest.subresources |= {("POST", "binding"): pods.bind, ("POST", "eviction"): pods.evict}
        self.http = HttpServer(self._handle, Guard(settings.host, settings.allowed_hosts))
        self.faults = Faults(self.store, self.lists, self.http.drop_connections)
        self._bearer = f"Bearer {settings.token}"
        self.nodes = self._nodes(settings.nodes) if settings.nodes is not None else None

    @property
    def port(self) -> int:
        return self.http.port

    @property
    def kubeconfig(self) -> Path:
        return self.settings.data_dir / "kubeconfig"

    def _nodes(self, settings: NodeSettings) -> Nodes:
        nodes = Nodes(settings, self.store, self.clock)
        subresources = self.rest.subresources
        subresources["GET", "log"] = LogRequests(self.registry, nodes, self.clock).serve
        subresources["GET", "exec"] = subresources["POST", "exec"] = ExecRequests(self.registry, nodes).serve
        return nodes

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.clock.attach(loop)
        self._create_first_objects()
        self.controllers.start()
        if self.nodes is not None:
            await self.nodes.start()
            Scheduler(self.registry, self.nodes, self.clock).start()
        settings = self.settings
        await self.http.start(settings.host, settings.port, settings.tls)
        self.watches.start(loop)
        server = f"{'https' if settings.tls else 'http'}://{settings.host}:{self.port}"
        write_kubeconfig(self.kubeconfig, server, settings.token, settings.ca_file)
        log.info("emulated Kubernetes on port %d", self.port)

    def _create_first_objects(self) -> None:
        for name in FIRST_NAMESPACES:
            if self.store.get("namespaces", "", name) is None:
                self.registry.create(NAMESPACES, "", {"metadata": {"name": name}})

    async def stop(self) -> None:
        self.watches.stop()
        await self.http.stop()
        if self.nodes is not None:
            await self.nodes.close()
        self.clock.stop()
        self.store.close()

    def _handle(self, request: Request) -> bytes | None:
        path = request.path
        if path.startswith(HEALTH):
            return text_answer(200, "ok")
        if not self._is_known(request):
            return refusal(unauthorized())
        try:
            if path == FAULTS:
                # A token is required: faults are for tests, not for clients.
                if self.settings.token and not request.headers.get("authorization"):
                    raise unauthorized()
                return self.faults.handle(request)
            if (busy := self.faults.refusal()) is not None:
                return busy
            if self.nodes is not None and path.startswith(NODES):
                return handle_nodes(self.nodes, request)
            if self.nodes is not None and request.method == "GET" and (found := STATS.fullmatch(path)):
                return json_answer(200, summary(self.nodes, unquote(found[1])))
        except ApiError as error:
            return refusal(error)
        return self.rest.handle(request)

    def _is_known(self, request: Request) -> bool:
        """Return whether the token is valid; kubectl sends none to a port without TLS."""
        given = request.headers.get("authorization", "")
        if not given and self.settings.tls is None:
            return True
        return not self.settings.token or hmac.compare_digest(given.encode(), self._bearer.encode())
