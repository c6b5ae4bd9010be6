"""Pages below /minicluster, which Mesos does not have: drills, images and sandboxes."""

from __future__ import annotations

import secrets
from collections import Counter
from urllib.parse import parse_qs, unquote

import orjson

from services.lab.mesos.agents.sandbox_collector import Collector
from services.lab.mesos.api.drills import OLD_VERBS, VERBS, Drills, Refused
from services.lab.mesos.master.registry import Registry
from services.lab.mesos.resources import Json
from services.lab.shared.http.cross_site import body_fault
from services.lab.shared.http.server import Request, Response, json_response, plain
from services.lab.shared.images import Images

PREFIX = "/minicluster/"
PATHS = (
    "agents",
    *(f"agents/<name>/{verb}" for verb in VERBS),
    "master/failover",
    "images",
    "sandboxes",
)
PREFETCH_MAX = 10_000
"""Maximum number of images on hosts in one call."""
CUT_MAX = 10


class OwnPages:
    def __init__(self, token: str, registry: Registry, drills: Drills, images: Images, collector: Collector) -> None:
        """Create the pages; ``token`` is required for drills and for the deletion of sandboxes, unless it is empty."""
        self._token = token
        self._registry = registry
        self._drills = drills
        self._images = images
        self._collector = collector

    def handle(self, request: Request) -> Response:
        try:
            return json_response(orjson.dumps(self._answer(request)))
        except Refused as refused:
            return plain(refused.status, refused.text)

    def _answer(self, request: Request) -> Json:
        match unquote(request.path).removeprefix(PREFIX).split("/"):
            case ["agents"]:
                _check_method(request, "GET")
                return self._drills.agents()
            case ["agents", name, verb] if verb in VERBS or verb in OLD_VERBS:
                return self._drills.act(verb, name, self._body_of_drill(request))
            case ["master", "failover"]:
                return self._drills.replace_master(self._body_of_drill(request), request.connection)
            case ["images"]:
                _check_method(request, "GET", "POST")
                return self._images.page() if request.method == "GET" else self._prefetch(_body(request))
            case ["sandboxes"]:
                _check_method(request, "GET", "POST")
                return self._sandboxes(request)
            case _:
                raise Refused(404, f"Expected {', '.join(PREFIX + path for path in PATHS)}")

    def _body_of_drill(self, request: Request) -> Json:
        _check_method(request, "POST")
        self._check_token(request)
        return _body(request)

    def _check_token(self, request: Request) -> None:
        given = request.headers.get("authorization", "")
        if self._token and not secrets.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            raise Refused(
                401, "Drills need the token that this minicluster was started with: Authorization: Bearer TOKEN"
            )

    def _prefetch(self, body: Json) -> Json:
        """Start downloads; returns the number of images on hosts by outcome."""
        rows = body.get("images")
        if not isinstance(rows, list) or not all(_names_image_and_hosts(row) for row in rows):
            raise Refused(400, 'Expected {"images": [{"image": NAME, "hosts": [NAME, ...]}, ...]}')
        wanted = [(row["image"], host) for row in rows for host in row["hosts"]]
        if len(wanted) > PREFETCH_MAX:
            raise Refused(400, f"{len(wanted)} images on hosts are more than the {PREFETCH_MAX} of one call")
        return Counter(self._prefetch_on(host, image) for image, host in wanted)

    def _prefetch_on(self, host: str, image: str) -> str:
        """Start a download; returns the outcome, `unknown` for an unknown host, or `away` while its agent is
        offline."""
        agent = self._registry.by_host.get(host)
        if agent is None:
            return "unknown"
        return self._images.prefetch(host, image) if agent.online else "away"

    def _sandboxes(self, request: Request) -> Json:
        """Count sandboxes by executor (GET), or delete the sandboxes of some executors (POST).

        A framework whose task ids begin with the id of their job, such as JOB-3-1, counts per job with `cut=2`, which
        drops the last two parts of each id.
        """
        cut = parse_qs(request.query).get("cut", ["0"])[-1]
        if not (cut.isdigit() and int(cut) <= CUT_MAX):
            raise Refused(400, f"Expected cut=N with 0 <= N <= {CUT_MAX}, got {cut!r}")
        if request.method == "GET":
            return {"executors": self._collector.counts(int(cut))}
        self._check_token(request)
        executors = _body(request).get("executors")
        if not isinstance(executors, list) or not all(isinstance(executor, str) for executor in executors):
            raise Refused(400, 'Expected {"executors": ["ID", ...]}')
        return {"removed": self._collector.remove(frozenset(executors), int(cut))}


def _names_image_and_hosts(row: object) -> bool:
    if not isinstance(row, dict):
        return False
    image, hosts = row.get("image"), row.get("hosts")
    is_list = isinstance(hosts, list) and all(isinstance(host, str) for host in hosts)
    return isinstance(image, str) and image != "" and is_list


def _check_method(request: Request, *methods: str) -> None:
    if request.method not in methods:
        raise Refused(405, f"{request.path} takes {' and '.join(methods)}, not {request.method}")


def _body(request: Request) -> Json:
    """Return the JSON body, {} without one."""
    if not request.body:
        return {}
    if (text := body_fault(request.headers)) is not None:
        raise Refused(415, text)
    try:
        body = orjson.loads(request.body)
    except orjson.JSONDecodeError as error:
        raise Refused(400, f"The body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise Refused(400, "Expected a JSON object")
    return body
