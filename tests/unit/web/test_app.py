"""The pages over HTTP: accepted requests and their answers."""

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
    """Return the repository's files that the app imports as text."""
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
    """The page loads parts of this server only; links may lead elsewhere."""
    page = (ASSETS / "index.html").read_text()

    assert "http:" not in page
    assert "https:" not in page
    assert "//" not in page.replace("<!--", "")


def test_editors_find_the_schemas_of_files(client: TestClient) -> None:
    """The schemas are the ones that ``peloton schema`` prints."""
    for name in ("job", "service", "pool"):
        response = client.get(f"/schemas/{name}.json")

        assert (200, "application/schema+json") == (response.status_code, response.headers["content-type"])
        assert schema_of(name) == response.json()


def test_every_page_of_the_table_has_a_component() -> None:
    """Every page of the table has a component, and every component a page."""
    pages = json.loads((APP / "pages.json").read_text())

    assert sorted(page["name"] for page in pages) == sorted(path.stem for path in (APP / "src/pages").glob("*.tsx"))
    assert len({page["path"] for page in pages}) == len(pages)


@pytest.mark.parametrize("path", ["/", "/jobs/some-id", "/pools/eng/maps"])
def test_every_address_is_the_app(path: str, client: TestClient) -> None:
    """Every address has the app, which selects the page; browsers revalidate the page and cache its parts."""
    answer = client.get(path)

    assert (200, "no-cache") == (answer.status_code, answer.headers["cache-control"])
    assert '<div id="app">' in answer.text
    assert "default-src 'self'" in answer.headers["content-security-policy"]


def test_the_parts_of_the_app_are_compressed_and_kept(client: TestClient) -> None:
    """The names of the parts change with their content, so browsers may keep them."""
    script = next(ASSETS.glob("assets/index-*.js"))

    answer = client.get(f"/assets/{script.name}")

    assert 200 == answer.status_code
    assert "gzip" == answer.headers["content-encoding"]
    assert "immutable" in answer.headers["cache-control"]


def test_a_part_that_is_not_there_is_not_the_page(client: TestClient) -> None:
    """A missing part is not answered with the page, since a browser would run it as a script."""
    assert 404 == client.get("/assets/gone.js").status_code


@pytest.mark.parametrize("path", ["/..%2fapp.py", "/%2e%2e/app.py", "/assets/..%2f..%2fapp.py"])
def test_no_other_file_is_served(path: str, client: TestClient) -> None:
    """No spelling of a path leads to another file."""
    assert "create_app" not in client.get(path).text


@pytest.mark.parametrize("host", ["127.0.0.1:5398", "localhost:1234", "[::1]:5398", "10.2.3.4", "peloton.example:80"])
def test_a_host_that_is_ours_is_answered(host: str, client: TestClient) -> None:
    """A numeric address, localhost or a configured host name is answered."""
    assert 200 == client.get("/settings.json", headers={"host": host}).status_code


@pytest.mark.parametrize("host", ["evil.example", "", "127.0.0.1.evil.example", "[::1", "localhost.evil.example:5398"])
def test_a_site_that_resolves_to_us_is_refused(host: str, client: TestClient) -> None:
    """Another host name is refused, since its pages could otherwise read Peloton's."""
    answer = client.get("/settings.json", headers={"host": host})

    assert 403 == answer.status_code
    assert "permission_denied" == answer.json()["code"]


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:9999", "http://[", "//]", "x:"])
def test_a_page_of_another_site_is_refused(origin: str, client: TestClient) -> None:
    """A page of another origin is refused, even of another port of this machine."""
    answer = client.get("/settings.json", headers={"origin": origin})

    assert (403, f"a page of {origin} may not ask Peloton for anything") == (
        answer.status_code,
        answer.json()["message"],
    )


def test_our_own_page_is_answered(client: TestClient) -> None:
    """The server's own page receives its settings."""
    answer = client.get("/settings.json", headers={"origin": "http://127.0.0.1:5398"})

    reported = {
        "temporalUi": "http://temporal.example",
        "temporalNamespace": "",
        "viewer": "everybody",
        "mayChange": True,
        "needsSignIn": False,
        "isSignedIn": False,
    }
    assert reported == answer.json()


def test_a_wrong_topic_is_refused(client: TestClient) -> None:
    """An unknown topic is refused before the stream begins."""
    answer = client.get("/live?topic=nothing")

    assert (400, "invalid_argument") == (answer.status_code, answer.json()["code"])
