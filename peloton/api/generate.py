"""Generates the Python code of every .proto file below peloton/api, and the table of their comments.

Messages (``_pb2.py``) and comments are committed: run ``python -m peloton.api.generate`` after changing a .proto file.
Services (``_pb2_grpc.py``) are generated while the package is installed or built, types (``.pyi``) when the environment
of the tests is made; both are ignored by git. With ``--check`` nothing is written: the command names the files that
differ and fails. A file's place in the tree is its import path, so that ``peloton/api/v0/job/job.proto`` becomes the
module ``peloton.api.v0.job.job_pb2``.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from peloton.api.comments import TABLE, comments_in, table_of

REPOSITORY_ROOT = Path(__file__).resolve().parents[2]
API_FOLDER = Path("peloton/api")
IGNORED_ENDINGS = ("_pb2.pyi", "_pb2_grpc.py", "_pb2_grpc.pyi")
"""Names of generated files that are not committed."""
GENERATED_ENDINGS = ("_pb2.py", *IGNORED_ENDINGS)
SERVICE_LINE = re.compile(r"^service\s", re.MULTILINE)
WITHOUT_STUBS = {
    API_FOLDER / path
    for path in (
        # Alternative names of services that clients call by another one: see service_names.
        "v0/job/job.proto",
        "v0/job/svc/job_svc.proto",
        "v0/respool/respool.proto",
        "v0/respool/svc/respool_svc.proto",
        "v0/task/task.proto",
        "v0/task/svc/task_svc.proto",
    )
}


PRIVATE = API_FOLDER / "private"


class GenerationError(Exception):
    """Refusal of a .proto file by the compiler."""


def proto_files(root: Path) -> list[Path]:
    """Return every .proto file of the API, relative to ``root``, in a fixed order."""
    return sorted(path.relative_to(root) for path in (root / API_FOLDER).rglob("*.proto"))


def service_files(root: Path) -> list[Path]:
    """The .proto files with services that are called through stubs, relative to ``root``."""
    declares = (path for path in proto_files(root) if SERVICE_LINE.search((root / path).read_text()))
    return [path for path in declares if path not in WITHOUT_STUBS]


def generate(root: Path, out: Path) -> None:
    """Write all generated code of the .proto files below ``root`` into the same folders below ``out``."""
    protos = proto_files(root)
    run_protoc(root, ["python", "mypy"], out, protos)
    generate_services(root, out, ["mypy_grpc"])
    write_comments(root, out, [path for path in protos if PRIVATE not in path.parents])


def generate_services(root: Path, out: Path, more: list[str] | None = None) -> None:
    """Write the code of services, and what further plugins of protoc make of them."""
    if services := service_files(root):
        run_protoc(root, ["grpc_python", *(more or [])], out, services)


def write_comments(root: Path, out: Path, protos: list[Path]) -> None:
    with tempfile.NamedTemporaryFile() as file:
        call_protoc(root, ["--include_source_info", f"--descriptor_set_out={file.name}"], protos)
        descriptors = FileDescriptorSet.FromString(file.read())
    (out / API_FOLDER / TABLE).write_text(table_of(comments_in(descriptors)), encoding="utf-8")


def run_protoc(root: Path, languages: list[str], out: Path, protos: list[Path]) -> None:
    call_protoc(root, [f"--{language}_out={out}" for language in languages], protos)


def call_protoc(root: Path, wanted: list[str], protos: list[Path]) -> None:
    # Plugins are looked for next to the interpreter: a virtual environment need not be on PATH.
    scripts = Path(sys.executable).parent
    well_known = Path(str(find_spec("grpc_tools").submodule_search_locations[0])) / "_proto"  # type: ignore[union-attr, index]
    command = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        f"--proto_path={root}",
        f"--proto_path={well_known}",
        f"--plugin=protoc-gen-mypy={scripts / 'protoc-gen-mypy'}",
        f"--plugin=protoc-gen-mypy_grpc={scripts / 'protoc-gen-mypy_grpc'}",
        *wanted,
        *(str(path) for path in protos),
    ]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise GenerationError(result.stderr.strip())


def generate_files(root: Path) -> dict[Path, bytes]:
    """Return the generated files below ``root``, by path relative to it."""
    found = (path for path in (root / API_FOLDER).rglob("*") if path.name.endswith((*GENERATED_ENDINGS, TABLE)))
    return {path.relative_to(root): path.read_bytes() for path in found}


def find_outdated(root: Path) -> dict[Path, bytes | None]:
    """Return the generated files that differ from the output for the .proto files, with the right content; None for
    files to delete."""
    with tempfile.TemporaryDirectory() as folder:
        generate(root, Path(folder))
        expected = generate_files(Path(folder))
    actual = generate_files(root)
    differing = sorted(path for path in expected.keys() | actual.keys() if expected.get(path) != actual.get(path))
    return {path: expected.get(path) for path in differing}


def write(root: Path, path: Path, content: bytes | None) -> None:
    if content is None:
        (root / path).unlink()
        return
    (root / path).write_bytes(content)
    for folder in [path.parent, *path.parent.parents]:
        if API_FOLDER in folder.parents:
            (root / folder / "__init__.py").touch()


def main(arguments: list[str] | None = None, root: Path = REPOSITORY_ROOT) -> int:
    parser = argparse.ArgumentParser(prog="python -m peloton.api.generate", description="Generate code from .proto")
    parser.add_argument("--check", action="store_true", help="write nothing, fail when a generated file is out of date")
    parser.add_argument("--ignored", action="store_true", help="write only the files that are not committed")
    options = parser.parse_args(arguments)
    try:
        outdated = find_outdated(root)
    except GenerationError as error:
        print(error, file=sys.stderr)
        return 2
    if options.ignored:
        outdated = {path: content for path, content in outdated.items() if path.name.endswith(IGNORED_ENDINGS)}
    for path, content in outdated.items():
        print(f"{'out of date' if options.check else 'removed' if content is None else 'written'}: {path}")
        if not options.check:
            write(root, path, content)
    return 1 if options.check and outdated else 0


if __name__ == "__main__":
    sys.exit(main())
