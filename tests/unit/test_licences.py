"""Licences travel with what contains the work of other projects."""

from __future__ import annotations

import json
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "services" / "web"
LICENCES = WEB / "assets" / "THIRD_PARTY_LICENSES.txt"
GRANTS = ("Permission is hereby granted", "Redistribution and use in source and binary forms")
IMPORT = r'(?:\bfrom |\bimport\(|^import )"([@\w][\w@/.-]*)"'
DEFAULT_FILES = ["LICEN[CS]E*", "NOTICE*"]
"""Files that hatchling puts into a package unless the project names its own."""


def test_each_npm_package_of_the_pages_has_its_licence() -> None:
    """The file that `make web` writes has version and licence of each package that may be in the bundle."""
    packages = json.loads((WEB / "app" / "package-lock.json").read_text())["packages"]
    locked = {
        f"{path.removeprefix('node_modules/')} {package['version']} ({package['license']})"
        for path, package in packages.items()
        if path and not package.get("dev")
    }
    parts = re.split(r"^=== (.+)$", LICENCES.read_text(encoding="utf-8"), flags=re.MULTILINE)

    assert sorted(locked) == sorted(parts[1::2]), "run make web"
    assert [name for name, text in zip(parts[1::2], parts[2::2], strict=True) if not _is_licence(text)] == []


def _is_licence(text: str) -> bool:
    return "Copyright" in text and any(grant in text for grant in GRANTS)


def test_each_import_of_the_pages_is_in_the_lock() -> None:
    """The pages import no package that the licences could miss: each is a dependency, and not for development alone."""
    app = json.loads((WEB / "app" / "package.json").read_text())
    sources = [path.read_text() for path in (WEB / "app" / "src").rglob("*.ts*")]
    imported = {
        "/".join(name.split("/")[: 2 if name.startswith("@") else 1])
        for text in sources
        for name in re.findall(IMPORT, text, re.MULTILINE)
    }

    assert imported
    assert imported - app["dependencies"].keys() == set()


def test_packages_have_the_notice_of_mesos() -> None:
    """Mesos's .proto file has its licence, NOTICE names it, and packages have LICENSE and NOTICE."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    patterns = project.get("license-files", DEFAULT_FILES)
    header = (ROOT / "peloton/api/mesos/v1/mesos.proto").read_text().partition("syntax")[0]

    assert "Licensed to the Apache Software Foundation" in header
    assert "Apache Mesos\n    Copyright 2012-2022, The Apache Software Foundation" in (ROOT / "NOTICE").read_text()
    assert all(any(fnmatch(name, pattern) for pattern in patterns) for name in ("LICENSE", "NOTICE"))
