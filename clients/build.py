"""Builds the clients of other languages into ``dist``: ``python -m clients.build [protos] [go] [java]``.

* ``peloton-protos-VERSION.tar.gz``: the public .proto files with all that they import, for any generator
* ``peloton-go-VERSION.tar.gz``: the module of ``clients/go`` with its generated code
* ``peloton-client-VERSION.jar``: the jar of ``clients/java``, with its ``.pom``

Generated code is made and never committed. Generators of Go come from the versions in ``go.mod``, those of Java from
``pom.xml``; the compiler is that of ``grpcio-tools``, and for Java the one that Maven downloads.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from peloton.api.generate import PRIVATE, REPOSITORY_ROOT, GenerationError, call_protoc, proto_files

DIST = REPOSITORY_ROOT / "dist"
GO = REPOSITORY_ROOT / "clients" / "go"
JAVA = REPOSITORY_ROOT / "clients" / "java"
GO_MODULE = "peloton.internal/go"
LICENSES = ("LICENSE", "NOTICE")
IMPORT = re.compile(r'^import "(.+)";', re.MULTILINE)
GENERATORS = ("google.golang.org/protobuf/cmd/protoc-gen-go", "google.golang.org/grpc/cmd/protoc-gen-go-grpc")


class CannotBuild(Exception):
    """Raised when the machine lacks a compiler, or a compiler fails."""


def read_version() -> str:
    project = tomllib.loads((REPOSITORY_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(project["project"]["version"])


def public_protos() -> list[Path]:
    """Return the .proto files of the public API, relative to the repository."""
    return [path for path in proto_files(REPOSITORY_ROOT) if PRIVATE not in path.parents]


def copy_protos(target: Path) -> None:
    """Copy the public .proto files below a folder, and files of other projects that they import."""
    others = Path(str(find_spec("grpc_tools").submodule_search_locations[0])) / "_proto"  # type: ignore[union-attr, index]
    waiting, known = public_protos(), set[Path]()
    while waiting:
        path = waiting.pop()
        known.add(path)
        source = next(root / path for root in (REPOSITORY_ROOT, others) if (root / path).exists())
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target / path)
        imported = {Path(name) for name in IMPORT.findall(source.read_text(encoding="utf-8"))}
        waiting += sorted(imported - known)


def build_protos(dist: Path, version: str) -> Path:
    name = f"peloton-protos-{version}"
    with tempfile.TemporaryDirectory() as folder:
        copy_protos(Path(folder) / name)
        return pack(Path(folder) / name, dist)


def build_go(dist: Path, version: str) -> Path:
    generate_go()
    name = f"peloton-go-{version}"
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(GO, Path(folder) / name)
        return pack(Path(folder) / name, dist)


def generate_go() -> None:
    """Write the code of the public .proto files into ``clients/go/api``, which is deleted before."""
    go = find_program("go")
    environment = {**os.environ, "GOFLAGS": "-buildvcs=false -mod=readonly"}
    with tempfile.TemporaryDirectory() as tools:
        run([go, "build", "-o", f"{tools}/", *GENERATORS], GO, environment)
        shutil.rmtree(GO / "api", ignore_errors=True)
        wanted = []
        for language in ("go", "go-grpc"):
            plugin = f"--plugin=protoc-gen-{language}={tools}/protoc-gen-{language}"
            wanted += [plugin, f"--{language}_out={GO}", f"--{language}_opt=module={GO_MODULE}"]
        call_protoc(REPOSITORY_ROOT, wanted, public_protos())


def build_java(dist: Path, version: str) -> Path:
    """Build and test the jar. The libraries that it needs are copied to ``clients/java/target/lib``."""
    name = f"peloton-client-{version}"
    maven = find_program("mvn")
    with tempfile.TemporaryDirectory() as folder:  # Maven reads every file below its folder of .proto files
        copy_protos(Path(folder))
        arguments = ["--quiet", "--batch-mode", f"-Drevision={version}", f"-Dprotos={folder}"]
        run([maven, *arguments, "clean", "package"], JAVA, dict(os.environ))
    dist.mkdir(parents=True, exist_ok=True)
    pom = (JAVA / "pom.xml").read_text(encoding="utf-8")
    (dist / f"{name}.pom").write_text(pom.replace("${revision}", version), encoding="utf-8")
    return Path(shutil.copy(JAVA / "target" / f"{name}.jar", dist))


def pack(folder: Path, dist: Path) -> Path:
    """Pack a folder and the licenses. The archive of the same files is the same on every machine and at any time."""
    for name in LICENSES:
        shutil.copy(REPOSITORY_ROOT / name, folder)
    dist.mkdir(parents=True, exist_ok=True)
    archive = dist / f"{folder.name}.tar.gz"
    with (
        archive.open("wb") as packed,
        gzip.GzipFile("", "wb", fileobj=packed, mtime=0) as unpacked,
        tarfile.open(fileobj=unpacked, mode="w") as files,
    ):
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            files.add(path, str(path.relative_to(folder.parent)), filter=anonymous)
    return archive


def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mtime = member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o644
    return member


def find_program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise CannotBuild(f"{name} is not on PATH: install it, or name the other clients to build")
    return found


def run(command: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotBuild(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


PARTS = {"protos": build_protos, "go": build_go, "java": build_java}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m clients.build", description="Build clients of other languages")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: all")
    names = parser.parse_args(arguments).parts or list(PARTS)
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"unknown parts {', '.join(unknown)}; known parts: {', '.join(PARTS)}")
    try:
        for name in names:
            print(PARTS[name](DIST, read_version()).relative_to(REPOSITORY_ROOT), flush=True)
    except (CannotBuild, GenerationError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
