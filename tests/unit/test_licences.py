"""Licences travel with what contains the work of other projects."""

from __future__ import annotations

import json
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

from deploy import sbom

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


def test_each_package_that_users_get_has_an_allowed_licence() -> None:
    """Packages of Python and of the pages: a new dependency under another licence is a decision of its own."""
    components = sbom.list_components()

    assert {"grpcio", "psycopg", "pymesos", "sqlmodel", "preact", "temporalio"} <= {one.name for one in components}
    assert {one.name: one.refused for one in components if one.refused} == {}


def test_a_licence_is_refused_unless_one_alternative_is_allowed_whole() -> None:
    """An expression of SPDX is read with its alternatives."""
    refused = {
        "MIT": [],
        "MIT AND PSF-2.0": [],
        "GPL-3.0-only": ["GPL-3.0-only"],
        "GPL-3.0-only OR MIT": [],
        "MPL-2.0 AND (Apache-2.0 OR MIT)": [],
        "GPL-3.0-only AND (Apache-2.0 OR MIT)": ["GPL-3.0-only"],
        "MIT AND SSPL-1.0": ["SSPL-1.0"],
        "": ["none named"],
    }

    assert {text: sbom.Component("pypi", "one", "1", text).refused for text in refused} == refused


def test_the_bill_of_materials_names_each_package_with_version_and_licence() -> None:
    """Scanners find each package by its package URL."""
    components = sbom.list_components()
    bom = json.loads(sbom.make_bom(components))

    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.6")
    assert bom["metadata"]["component"]["name"] == sbom.NAME
    assert [one["name"] for one in bom["components"] if not (one["purl"] and one["version"] and one["licenses"])] == []
    assert len(bom["components"]) == len(components)
