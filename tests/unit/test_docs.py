"""The documents agree with the code: settings, commands, decisions, dependencies, targets, links, words."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

from cli.main import peloton
from cli.reference import context, iterate_commands
from peloton.access import page as permissions
from peloton.api import error_page
from peloton.hosts import state_page
from peloton.lifecycle.pod_page import TARGET, page
from services import settings_page
from services.settings import is_unknown
from services.settings_table import SETTINGS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
ADR = DOCS / "adr"
SETTINGS_PAGE = DOCS / "settings.md"
ADR_HEADINGS = ["Context", "Decision", "Alternatives", "Consequences", "How we test it"]
CHANGE_HEADINGS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Upgrading"]
HIDDEN = {".venv", ".git", "node_modules", "tests"}
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


@cache
def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def documents() -> list[Path]:
    found = [path for path in sorted(ROOT.rglob("*.md")) if not HIDDEN & set(path.relative_to(ROOT).parts)]
    return [path for path in found if not any(part.endswith("_cache") for part in path.parts)]


def decisions() -> list[Path]:
    return sorted(ADR.glob("[0-9]*.md"))


def table(path: Path, first: str) -> list[list[str]]:
    """Cells of the rows of the Markdown table whose header begins with ``first``."""
    lines = iter(text(path).splitlines())
    rows: list[list[str]] = []
    for line in lines:
        if line.startswith(f"| {first} |"):
            next(lines)
            for row in lines:
                if not row.startswith("|"):
                    return rows
                rows.append([cell.strip() for cell in row.strip("|").split("|")])
    return rows


# Settings, commands, targets.


def test_the_page_of_settings_is_current() -> None:
    """The page docs/settings.md is generated from the table, and has a row for each setting."""
    rows = [row[0] for row in table(SETTINGS_PAGE, "variable")]

    assert settings_page.page() == text(SETTINGS_PAGE)
    assert [f"`{setting.variable}`" for setting in SETTINGS.values()] == rows


def test_no_document_names_an_unknown_setting() -> None:
    """Each PELOTON_ variable in a document is a setting, or a variable of commands, tests, pods and hosts."""
    known = {setting.variable for setting in SETTINGS.values()}
    files = [path for path in documents() if path.name not in ("CHANGELOG.md", "settings.md")]
    named = {(path.name, name) for path in files for name in re.findall(r"\bPELOTON_[A-Z0-9_]*[A-Z0-9]\b", text(path))}

    assert [(where, name) for where, name in sorted(named) if name not in known and is_unknown(name)] == []


def test_every_command_is_in_the_reference() -> None:
    """docs/cli.md has a section for each command."""
    sections = set(re.findall(r"^#+ `(.+)`$", text(DOCS / "cli.md"), re.MULTILINE))
    commands = [path for path, _, _ in iterate_commands(peloton, context(peloton, "peloton"))]

    assert [command for command in commands if command not in sections] == []


def test_the_page_of_pod_states_is_current() -> None:
    """The page docs/pod-states.md is generated from the pod machine's table."""
    assert page() == text(TARGET)


def test_the_page_of_the_state_of_hosts_is_current() -> None:
    """The page docs/host-state.md is generated from the events of the state, each of which has a meaning."""
    assert state_page.page() == text(state_page.TARGET)
    assert [event.name for event in state_page.events() if not event.meaning] == []


def test_the_page_of_errors_is_current() -> None:
    """The page docs/errors.md is generated from the reasons of errors."""
    assert error_page.render() == text(error_page.TARGET)


def test_the_page_of_permissions_is_current() -> None:
    """The page docs/permissions.md is generated from the table of permissions."""
    assert permissions.page() == text(permissions.PAGE)


def test_every_target_that_is_named_exists_and_is_explained() -> None:
    """Each ``make X`` in a document is a target of the Makefile, and each target is in CONTRIBUTING.md."""
    targets = set(re.findall(r"^([a-z]+):.*## ", text(ROOT / "Makefile"), re.MULTILINE))
    named = {name for path in documents() for name in re.findall(r"(?:`|^)make ([a-z]+)\b", text(path), re.MULTILINE)}
    explained = set(re.findall(r"`make ([a-z]+)`", text(ROOT / "CONTRIBUTING.md")))

    assert named - targets == set()
    assert targets - explained - {"help"} == set()


# Decisions.


def test_decisions_are_numbered_and_listed() -> None:
    """Decisions are numbered without gaps, and each is in the list with its title."""
    titles = {path.name: text(path).splitlines()[0] for path in decisions()}
    rows = table(ADR / "README.md", "no.")
    listed = {target: f"# {row[0].split(']')[0][1:]}. {row[1]}" for row in rows for target in LINK.findall(row[0])}

    assert [int(path.name[:4]) for path in decisions()] == list(range(1, len(decisions()) + 1))
    assert titles == listed


def test_a_decision_has_all_its_parts() -> None:
    """Each decision has the five headings, each with something under it."""
    parts = {path.stem: re.split(r"^## (.+)$", text(path), flags=re.MULTILINE) for path in decisions()}

    assert {name: found[1::2] for name, found in parts.items() if found[1::2] != ADR_HEADINGS} == {}
    assert [name for name, found in parts.items() if not all(body.strip() for body in found[2::2])] == []


def requirements() -> Iterator[str]:
    project = tomllib.loads(text(ROOT / "pyproject.toml"))
    groups = project["project"].get("optional-dependencies", {}).values()
    lines = [*project["build-system"]["requires"], *project["project"]["dependencies"], *chain(*groups)]
    for line in lines:
        found = re.match(r"[A-Za-z0-9._-]+", line)
        assert found is not None
        if found.group() != "peloton-temporal":  # of an extra that includes others
            yield found.group()


def test_every_dependency_has_its_reason() -> None:
    """The decision about dependencies has a line for each requirement of pyproject.toml."""
    page = text(ADR / "0009-dependencies.md")

    assert [name for name in requirements() if f"`{name}`" not in page] == []


# Links, words, headings.


@cache
def anchors(path: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", text(path)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_every_link_leads_somewhere() -> None:
    """Each link of a document to a file or heading of this repository resolves."""
    assert [f"{path.relative_to(ROOT)}: {target}" for path in documents() for target in broken_links(path)] == []


def broken_links(path: Path) -> Iterator[str]:
    for target in LINK.findall(FENCE.sub("", text(path))):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists() or (anchor and anchor not in anchors(file)):
            yield target


def test_every_document_can_be_found() -> None:
    """Each page in docs/ is linked from the README, an index in docs/ or the list of decisions."""
    linked = set()
    for path in (ROOT / "README.md", DOCS / "README.md", DOCS / "frameworks" / "README.md", ADR / "README.md"):
        linked |= {(path.parent / target).resolve() for target in LINK.findall(text(path)) if "://" not in target}

    assert [str(path.relative_to(ROOT)) for path in sorted(DOCS.rglob("*.md")) if path.resolve() not in linked] == []


@cache
def code() -> str:
    files = [p for folder in ("peloton", "services", "workflows", "cli") for p in (ROOT / folder).rglob("*.py")]
    return "\n".join(text(path) for path in files if not path.stem.endswith(("_pb2", "_pb2_grpc")))


def starting_with(words: str) -> str:
    """Return a pattern for the beginning of a word; a search skips to its letters, unlike with ``\\b``."""
    return rf"{re.escape(words)}(?<!\w{re.escape(words)})"


def test_glossary_terms_are_used() -> None:
    """Each name that the glossary gives for a term occurs in the code, and each term in another document."""
    rows = table(DOCS / "glossary.md", "term")
    others = " ".join(text(path).lower() for path in documents() if path.name != "glossary.md")
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row[2]) if name != "job update"]
    terms = [term.strip() for row in rows for term in row[0].split(",")]

    assert [name for name in names if not re.search(rf"{starting_with(name)}\b", code())] == []
    assert [term for term in terms if not re.search(starting_with(term), others)] == []


def test_the_glossary_has_each_term_once() -> None:
    """No term has two meanings."""
    terms = [row[0] for row in table(DOCS / "glossary.md", "term")]

    assert sorted(set(terms)) == sorted(terms)


def test_the_change_log_has_its_headings() -> None:
    """The unreleased changes stand under the fixed headings, in their order."""
    unreleased = text(ROOT / "CHANGELOG.md").split("## Unreleased")[1].split("\n## ")[0]

    assert re.findall(r"^### (.+)$", unreleased, re.MULTILINE) == CHANGE_HEADINGS


def test_the_license_is_the_one_that_is_declared() -> None:
    """LICENSE holds the Apache License 2.0, as pyproject.toml says."""
    project = tomllib.loads(text(ROOT / "pyproject.toml"))["project"]
    license_text = text(ROOT / "LICENSE")

    assert project["license"] == "Apache-2.0 AND BSD-3-Clause"  # of pymesos
    assert "Apache License\n                           Version 2.0, January 2004" in license_text
    assert "END OF TERMS AND CONDITIONS" in license_text
