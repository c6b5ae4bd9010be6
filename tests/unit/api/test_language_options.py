"""The options by which generators of Go and Java name the code of public .proto files."""

from __future__ import annotations

import re
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileOptions

from peloton.api.generate import PRIVATE, REPOSITORY_ROOT, proto_files

GO_MODULE = "peloton.internal/go"
HOMES = {
    "mesos.v1": "peloton.api.mesos.v1",  # a package of the original's name, below ours
    "peloton.private.hostmgr.hostsvc": "peloton.api.hostsvc",  # `private` is a keyword of Java
}
"""Packages of the wire whose code has another place than their name."""
PUBLIC = [path for path in proto_files(REPOSITORY_ROOT) if PRIVATE not in path.parents]
VERSION = re.compile(r"v\d\w*")


def descriptor_of(path: Path) -> FileDescriptor:
    found: FileDescriptor = import_module(".".join(path.with_name(f"{path.stem}_pb2").parts)).DESCRIPTOR
    return found


def options_of(path: Path) -> FileOptions:
    """Return the options that the rule gives to a public file."""
    package = descriptor_of(path).package
    home = HOMES.get(package, package)
    _, *folders = home.split(".")
    version = next(filter(VERSION.fullmatch, folders), "")
    words = [word for word in folders if word != version]
    name = "".join(words[-2:] if words[-1] == "svc" else words[-1:]) + version
    return FileOptions(
        go_package=f"{GO_MODULE}/{'/'.join(folders)};{name}",
        java_multiple_files=True,
        java_outer_classname="".join(word.capitalize() for word in path.stem.split("_")) + "Proto",
        java_package=home,
    )


@pytest.mark.parametrize("path", PUBLIC, ids=str)
def test_a_public_file_has_the_options(path: Path) -> None:
    """Packages of Go and Java follow from the package of the wire, and the class of a file from its name."""
    assert options_of(path) == descriptor_of(path).GetOptions()


def test_a_private_file_has_none() -> None:
    """No generator takes a private file, since no client calls what it declares."""
    private = [path for path in proto_files(REPOSITORY_ROOT) if PRIVATE in path.parents]

    assert private
    assert [path for path in private if descriptor_of(path).GetOptions() != FileOptions()] == []


def test_no_name_of_a_package_is_taken_twice() -> None:
    """One file of Go can import all packages without renaming one, and none is below a folder `internal`."""
    packages = {options_of(path).go_package for path in PUBLIC}
    names = Counter(package.partition(";")[2] for package in packages)

    assert {name: count for name, count in names.items() if count > 1} == {}
    assert [package for package in packages if "internal" in package.split(";")[0].split("/")] == []


def test_no_class_of_java_is_made_twice() -> None:
    """Messages, enums, services and the classes of files differ in each package of Java, whatever the letters' case."""
    made = Counter[tuple[str, str]]()
    for path in PUBLIC:
        file, options = descriptor_of(path), options_of(path)
        names = [*file.message_types_by_name, *(f"{name}OrBuilder" for name in file.message_types_by_name)]
        names += [*file.enum_types_by_name, *(f"{name}Grpc" for name in file.services_by_name)]
        made.update((options.java_package, name.lower()) for name in [*names, options.java_outer_classname])

    assert {name: count for name, count in made.items() if count > 1} == {}
