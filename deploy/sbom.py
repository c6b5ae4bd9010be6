"""Writes the bill of materials of the product as CycloneDX, and checks the licences of what it installs.

It lists the Python packages that this environment has for the product with all optional parts, pymesos, whose modules
are in the package, and the npm packages in the bundle of the pages.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
NAME = "peloton-temporal"
OF_USERS = ("archive", "joblib", "local", "postgres", "secure")
"""Extras of the product in the environment of the tests; these include the others, but for those of frameworks."""
ALLOWED = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "LGPL-3.0-only", "MIT", "MIT-0",
    "MPL-2.0", "PSF-2.0", "Zlib",
}  # fmt: skip
"""Licences under which others may pass the product on. Those with copyleft concern changes of the package itself."""
SPDX = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache-2.0 license": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: BSD License": "BSD-3-Clause",
    "License :: OSI Approved :: MIT License": "MIT",
    "MIT License": "MIT",
}
"""Licences as packages of old metadata name them."""


@dataclass(frozen=True)
class Component:
    """A package of another project; its licence is an SPDX expression, empty when the package names none."""

    kind: str  # pypi or npm
    name: str
    version: str
    licence: str

    @property
    def refused(self) -> list[str]:
        """Return the licences of the package that are not allowed; of alternatives one must be allowed."""
        return find_refused(load_licences().parse(self.licence)) if self.licence else ["none named"]


@cache
def load_licences() -> Any:
    """Return what parses expressions of SPDX; it reads the list of licences."""
    from license_expression import get_spdx_licensing

    return get_spdx_licensing()


def find_refused(expression: Any) -> list[str]:
    """Return the licences of an expression, or of the alternative that has fewest, which are not allowed."""
    parts = [find_refused(one) for one in expression.args]
    if not parts:
        return [] if expression.key in ALLOWED else [expression.key]
    return min(parts, key=len) if expression.operator == " OR " else [name for part in parts for name in part]


def list_components() -> list[Component]:
    """Return the packages that users get with the product, by kind and name."""
    python = [
        Component("pypi", one.name, one.version, read_licence(one)) for one in find_distributions() if one.name != NAME
    ]
    return sorted([*python, *read_npm(), read_pymesos()], key=lambda one: (one.kind, one.name.lower()))


def find_distributions() -> Iterator[Distribution]:
    """Return the installed packages that the product requires, with those that they require."""
    found: dict[str, set[str]] = {}
    waiting = [(NAME, {"", *OF_USERS})]
    while waiting:
        name, extras = waiting.pop()
        if name not in found:
            yield distribution(name)
        elif extras <= found[name]:
            continue
        found.setdefault(name, set()).update(extras)
        for requirement in map(Requirement, distribution(name).requires or ()):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append((canonicalize_name(requirement.name), {"", *requirement.extras}))


def read_licence(package: Distribution) -> str:
    metadata = package.metadata
    named = [metadata["License-Expression"], metadata["License"], *(metadata.get_all("Classifier") or ())]
    licences = [SPDX.get(text, text) for text in named if text and "\n" not in text]
    return next((text for text in licences if text.split()[0].strip("(") in ALLOWED), licences[0] if licences else "")


def read_npm() -> list[Component]:
    """Return the packages in the bundle of the pages."""
    lock: Mapping[str, Mapping[str, Mapping[str, str]]] = json.loads(
        (ROOT / "services" / "web" / "app" / "package-lock.json").read_text()
    )
    return [
        Component("npm", path.removeprefix("node_modules/"), one["version"], one["license"])
        for path, one in lock["packages"].items()
        if path and not one.get("dev")
    ]


def read_pymesos() -> Component:
    """Return the package that the build downloads, from its pinned requirement."""
    pinned = (ROOT / "third_party" / "pymesos" / "requirements.txt").read_text()
    version = next(line for line in pinned.splitlines() if line.startswith("pymesos==")).split()[0]
    return Component("pypi", "pymesos", version.removeprefix("pymesos=="), "BSD-3-Clause")


def make_bom(components: list[Component]) -> str:
    """Return the bill of materials as CycloneDX 1.6 in JSON."""
    from cyclonedx.contrib.license.factories import LicenseFactory
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component as BomComponent
    from cyclonedx.model.component import ComponentType
    from cyclonedx.output.json import JsonV1Dot6
    from packageurl import PackageURL

    licences = LicenseFactory()
    own = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bom = Bom()
    bom.metadata.component = BomComponent(
        name=NAME,
        version=own["version"],
        type=ComponentType.APPLICATION,
        licenses=[licences.make_with_expression(own["license"])],
    )
    for one in components:
        group, _, name = one.name.rpartition("/")
        bom.components.add(
            BomComponent(
                name=one.name,
                version=one.version,
                type=ComponentType.LIBRARY,
                bom_ref=f"{one.kind}:{one.name}",
                purl=PackageURL(one.kind, group or None, name, one.version),
                licenses=[licences.make_from_string(one.licence)],
            )
        )
    bom.register_dependency(bom.metadata.component, bom.components)
    return JsonV1Dot6(bom).output_as_string(indent=1)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(make_bom(list_components()) + "\n", encoding="utf-8")
