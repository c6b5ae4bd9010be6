"""Port of one agent whose tasks are processes."""

from __future__ import annotations

import asyncio
from urllib.parse import unquote

import orjson

from services.lab.mesos.agents.containers import ProcessRuntime
from services.lab.mesos.api import agent_pages
from services.lab.mesos.api.agent import PATH as AGENT_API_PATH
from services.lab.mesos.api.agent import RECORDIO_TYPE, AgentApi, SessionInput
from services.lab.mesos.api.files import Files
from services.lab.mesos.http.authentication import Authentication, agent_realm
from services.lab.mesos.master.registry import VERSION
from services.lab.mesos.model import Agent
from services.lab.mesos.settings import MiniclusterSettings
from services.lab.shared.http.cross_site import Guard
from services.lab.shared.http.server import HttpServer, Request, Response, json_page, not_found, plain


class AgentServer:
    """HTTP interface of one real agent: state, health, sessions and the files of its sandboxes."""

    def __init__(self, settings: MiniclusterSettings, runtime: ProcessRuntime) -> None:
        self._settings = settings
        self._api, self._sessions = AgentApi(runtime), runtime.sessions
        self._is_secret = runtime.is_secret
        # Created with the port on which this listens.
        self.agent: Agent | None = None
        self._authentication = Authentication(settings.credentials)
        guard = Guard(settings.host, settings.allowed_hosts)
        self.http = HttpServer(self._handle, guard, self._body_reader)

    def _body_reader(self, path: str, headers: dict[str, str], client: asyncio.Transport) -> SessionInput | None:
        is_input = _agent_path(path) == AGENT_API_PATH and headers.get("content-type") == RECORDIO_TYPE
        if not is_input or self._authentication.principal(headers) is None:
            return None
        return SessionInput(self._sessions, client)

    def _handle(self, request: Request) -> Response | bytes | None:
        agent = self.agent
        assert agent is not None
        path = _agent_path(request.path)
        if (refusal := self._authentication.refuse(request, agent_realm(path))) is not None:
            return refusal
        if not (agent.online or agent.returns) and not path.startswith("/files"):
            return plain(503, "Agent has not finished recovery")
        if path == AGENT_API_PATH:
            return self._api.handle(request)
        if path == "/health":
            return plain(200, "")
        if path == "/version":
            return json_page(orjson.dumps(VERSION))
        if path == "/state":
            return json_page(orjson.dumps(agent_pages.state(agent, self._settings)))
        if path == "/flags":
            return json_page(orjson.dumps({"flags": agent_pages.flags(self._settings)}))
        if path == agent_pages.STATISTICS:
            return json_page(orjson.dumps(agent_pages.statistics(agent)))
        if path.startswith("/files/"):
            return Files(self._settings.data_dir, agent.id, self._is_secret).handle(request)
        return not_found()


def _agent_path(path: str) -> str:
    return unquote(path).removeprefix("/slave(1)")
