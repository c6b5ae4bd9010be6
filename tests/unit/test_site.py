"""The site of the documentation has every page, and no link that leads out of it."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.nightly import NIGHTLY

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def pages_of(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for each in nav.values() if isinstance(nav, dict) else nav:
            yield from pages_of(each)


def test_each_page_is_in_the_navigation_once() -> None:
    """The navigation of mkdocs.yml has each page of docs/; single decisions are behind their list."""
    listed = list(pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    found = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]

    assert sorted(listed) == sorted(page for page in found if not page.startswith("adr/0"))


@pytest.mark.parametrize(
    ("text", "page", "expected"),
    [
        ("[code](../peloton/ports.py)", "a.md", "code"),
        ("[code](../../peloton/ports.py#L3)", "adr/a.md", "code"),
        ("[page](../a.md#top)", "adr/b.md", "[page](../a.md#top)"),
        ("[here](#top) [web](https://x.org/../y)", "a.md", "[here](#top) [web](https://x.org/../y)"),
    ],
)
def test_links_to_sources_become_text(text: str, page: str, expected: str) -> None:
    """A link from a page to a file outside docs/ is its text in the site; other links stay."""
    hook = runpy.run_path(str(ROOT / "deploy/site/links.py"))

    assert expected == hook["unlink_sources"](text, page)


@NIGHTLY
def test_the_site_is_built(tmp_path: Path) -> None:
    """`make site` builds the site with search, without a warning."""
    command = ["make", "-C", str(ROOT), "site", f"PYTHON={sys.executable}", f"SITE={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "index.html").exists()
    assert (tmp_path / "search" / "search_index.json").exists()
