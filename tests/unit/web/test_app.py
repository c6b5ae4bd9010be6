"""The pages over HTTP: which requests are answered, and with what."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from peloton.api.config_schema import schema_of
from services.web import app as web
from services.web.app import ASSETS, WebSettings, create_app

APP = Path(web.__file__).parent / "app"
OURS = ("index.html", "package-lock.json", "package.json", "pages.json", "public", "src")
BUILT_BY = ("tsconfig.json", "vite.config.ts")


@pytest.fixture
def client() -> Iterator[TestClient]:
    settings = WebSettings("127.0.0.1:1", "http://temporal.example", ("peloton.example",))
    with TestClient(create_app(settings), base_url="http://127.0.0.1:5398") as found:
        yield found


def sources() -> list[str]:
    files = [
        path
        for name in (*OURS, *BUILT_BY)
        for path in ([APP / name] if (APP / name).is_file() else (APP / name).rglob("*"))
    ]
    ours = [path.relative_to(APP).as_posix() for path in files if path.is_file()]
    return sorted([*ours, *examples()])


def examples() -> list[str]:
    """Files of ours that the app imports from elsewhere."""
    importing = APP / "src/editor/examples.ts"
    found = re.findall(r'"([^"]+)\?raw"', importing.read_text())
    return [Path(os.path.relpath(importing.parent / path, APP)).as_posix() for path in found]


def test_the_built_app_is_current() -> None:
    """`make web` builds services/web/assets from services/web/app."""
    digest = hashlib.sha256()
    for name in sources():
        digest.update(f"{name}\0".encode() + (APP / name).read_bytes() + b"\0")

    assert digest.hexdigest() == (ASSETS / "built-from.txt").read_text().strip(), "run make web"


def test_nothing_comes_from_another_network() -> None:
    """The page loads what is ours alone; what it says in links is another matter."""
    page = (ASSETS / "index.html").read_text()

    assert "http:" not in page
    assert "https:" not in page
    assert "//" not in page.replace("<!--", "")


def test_editors_find_the_schemas_of_files(client: TestClient) -> None:
    """They are those that ``peloton schema`` prints."""
    for name in ("job", "service", "pool"):
        response = client.get(f"/schemas/{name}.json")

        assert (200, "application/schema+json") == (response.status_code, response.headers["content-type"])
        assert schema_of(name) == response.json()


def test_every_page_of_the_table_has_a_component() -> None:
    """And the other way round."""
    pages = json.loads((APP / "pages.json").read_text())

    assert sorted(page["name"] for page in pages) == sorted(path.stem for path in (APP / "src/pages").glob("*.tsx"))
    assert len({page["path"] for page in pages}) == len(pages)


@pytest.mark.parametrize("path", ["/", "/jobs/some-id", "/pools/eng/maps"])
def test_every_address_is_the_app(path: str, client: TestClient) -> None:
    """The app finds the page; a new release is found at once, its parts are kept."""
    answer = client.get(path)

    assert (200, "no-cache") == (answer.status_code, answer.headers["cache-control"])
    assert '<div id="app">' in answer.text
    assert "default-src 'self'" in answer.headers["content-security-policy"]


def test_the_parts_of_the_app_are_compressed_and_kept(client: TestClient) -> None:
    """Their names change with their content."""
    script = next(ASSETS.glob("assets/index-*.js"))

    answer = client.get(f"/assets/{script.name}")

    assert 200 == answer.status_code
    assert "gzip" == answer.headers["content-encoding"]
    assert "immutable" in answer.headers["cache-control"]


def test_a_part_that_is_not_there_is_not_the_page(client: TestClient) -> None:
    """A script that is a page would be run."""
    assert 404 == client.get("/assets/gone.js").status_code


@pytest.mark.parametrize("path", ["/..%2fapp.py", "/%2e%2e/app.py", "/assets/..%2f..%2fapp.py"])
def test_no_other_file_is_served(path: str, client: TestClient) -> None:
    """However the path is written."""
    assert "create_app" not in client.get(path).text


@pytest.mark.parametrize("host", ["127.0.0.1:5398", "localhost:1234", "[::1]:5398", "10.2.3.4", "peloton.example:80"])
def test_a_host_that_is_ours_is_answered(host: str, client: TestClient) -> None:
    """A number is never another site."""
    assert 200 == client.get("/settings.json", headers={"host": host}).status_code


@pytest.mark.parametrize("host", ["evil.example", "", "127.0.0.1.evil.example", "[::1", "localhost.evil.example:5398"])
def test_a_site_that_resolves_to_us_is_refused(host: str, client: TestClient) -> None:
    """Its pages would otherwise read ours."""
    answer = client.get("/settings.json", headers={"host": host})

    assert 403 == answer.status_code
    assert "permission_denied" == answer.json()["code"]


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:9999"])
def test_a_page_of_another_site_is_refused(origin: str, client: TestClient) -> None:
    """Also of another port of this machine."""
    answer = client.get("/settings.json", headers={"origin": origin})

    assert (403, f"a page of {origin} may not ask Peloton for anything") == (
        answer.status_code,
        answer.json()["message"],
    )


def test_our_own_page_is_answered(client: TestClient) -> None:
    """With what it needs to know."""
    answer = client.get("/settings.json", headers={"origin": "http://127.0.0.1:5398"})

    told = {"temporalUi": "http://temporal.example", "temporalNamespace": "", "viewer": "everybody", "mayChange": True}
    assert told == answer.json()


def test_a_wrong_topic_is_refused(client: TestClient) -> None:
    """Before a stream begins."""
    answer = client.get("/live?topic=nothing")

    assert (400, "invalid_argument") == (answer.status_code, answer.json()["code"])
