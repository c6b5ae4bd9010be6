"""The generated code corresponds to the committed .proto files."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.api import generate
from peloton.api.comments import TABLE, comment_of

API = generate.API_FOLDER


def list_imports(proto: Path) -> Iterator[Path]:
    """Yield the files of the API that a .proto file imports, with what these import."""
    for name in re.findall(r'^import "(peloton/.*)";', (generate.REPOSITORY_ROOT / proto).read_text(), re.MULTILINE):
        yield from (Path(name), *list_imports(Path(name)))


def copy_of_api(folder: Path, *names: str) -> Path:
    """Copy these .proto files of the API, what they import, and the code generated from them; return the root. A copy
    of the whole API would take most of the time of these tests to generate.
    """
    protos = {path for name in names for path in (API / name, *list_imports(API / name))}
    for proto in protos:
        (folder / proto).parent.mkdir(parents=True, exist_ok=True)
        (folder / proto.parent / "__init__.py").touch()
        for file in (generate.REPOSITORY_ROOT / proto.parent).glob(f"{proto.stem}*"):
            if (
                file == generate.REPOSITORY_ROOT / proto
                or file.name.removeprefix(proto.stem) in generate.GENERATED_ENDINGS
            ):
                shutil.copy(file, folder / proto.parent)
    generate.write_comments(folder, folder, generate.proto_files(folder))
    return folder


def test_generated_code_is_up_to_date() -> None:
    """The generator produces the files in the tree, byte for byte."""
    assert generate.find_outdated(generate.REPOSITORY_ROOT) == {}


def test_every_proto_file_below_the_api_folder_is_compiled() -> None:
    """A .proto file in any folder has its module, its types, and service code if it declares a service with stubs."""
    files = generate.generate_files(generate.REPOSITORY_ROOT)
    for proto in generate.proto_files(generate.REPOSITORY_ROOT):
        stem = proto.with_suffix("")
        assert {Path(f"{stem}_pb2.py"), Path(f"{stem}_pb2.pyi")} <= files.keys()
        has_service = "\nservice " in (generate.REPOSITORY_ROOT / proto).read_text()
        is_called = has_service and proto not in generate.WITHOUT_STUBS
        assert (Path(f"{stem}_pb2_grpc.py") in files) == is_called


def test_a_changed_proto_file_is_noticed(tmp_path: Path) -> None:
    """A new field in a .proto file makes only its module and its stubs outdated."""
    root = copy_of_api(tmp_path, "v0/changelog/changelog.proto")
    proto = root / "peloton/api/v0/changelog/changelog.proto"
    proto.write_text(proto.read_text().replace("string updatedBy = 4;", "string updatedBy = 4;\n  string note = 5;"))
    outdated = [path.name for path in generate.find_outdated(root)]
    assert outdated == ["changelog_pb2.py", "changelog_pb2.pyi"]


def test_code_without_its_proto_file_is_noticed(tmp_path: Path) -> None:
    """A generated file without its .proto file is outdated, and must be deleted."""
    root = copy_of_api(tmp_path, "v1alpha/watch/svc/watch_svc.proto")
    (root / "peloton/api/v1alpha/watch/svc/watch_svc.proto").unlink()
    outdated = {path.name: content for path, content in generate.find_outdated(root).items()}
    comments = outdated.pop(TABLE)
    assert comments is not None
    assert b"watch_svc.proto" not in comments
    assert outdated == dict.fromkeys(f"watch_svc{ending}" for ending in generate.GENERATED_ENDINGS)


def test_a_changed_comment_is_noticed(tmp_path: Path) -> None:
    """A new comment makes the table of comments and the types outdated, since both contain it."""
    root = copy_of_api(tmp_path, "v0/job/job.proto")
    proto = root / "peloton/api/v0/job/job.proto"
    proto.write_text(proto.read_text().replace("// What the owner asks for.", "// What the owner wants."))
    outdated = {path.name: content for path, content in generate.find_outdated(root).items()}
    assert outdated.keys() == {TABLE, "job_pb2.pyi"}
    assert b'"peloton.api.v0.job.JobConfig": "What the owner wants."' in (outdated[TABLE] or b"")


def test_comments_have_the_full_names_of_what_they_are_about() -> None:
    """Services, methods, messages, fields, enums, values and files have their comments; others have an empty one."""
    assert "What the owner asks for." == comment_of("peloton.api.v0.job.JobConfig")
    assert comment_of("peloton.api.v0.job.SlaConfig.maxRunningTime").startswith("In seconds;")
    assert comment_of("peloton.api.v0.job.JobType.EXTERNAL").startswith("Extension: its pods were created by")
    assert comment_of("peloton.api.v0.bulk.BulkService.CreateJob").startswith("The answer is that of")
    assert "\n\n" in comment_of("peloton/api/v0/bulk/bulk.proto")
    assert "" == comment_of("peloton.api.v0.job.JobConfig.name")


def test_generating_mends_what_the_check_finds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A new .proto file in a new folder fails the check until the generator has run; then its module is importable."""
    root = copy_of_api(tmp_path, "v0/changelog/changelog.proto")
    proto = root / "peloton/api/extra/note/note.proto"
    proto.parent.mkdir(parents=True)
    proto.write_text('syntax = "proto3";\npackage extra;\nmessage Note { string text = 1; }\n')
    assert generate.main(["--check"], root) == 1
    assert "out of date: peloton/api/extra/note/note_pb2.py" in capsys.readouterr().out
    assert generate.main([], root) == 0
    assert generate.main(["--check"], root) == 0
    assert sorted(path.name for path in proto.parent.iterdir()) == [
        "__init__.py",
        "note.proto",
        "note_pb2.py",
        "note_pb2.pyi",
    ]
    assert (proto.parent.parent / "__init__.py").read_bytes() == b""


def test_only_what_is_not_committed_is_written_for_an_environment(tmp_path: Path) -> None:
    """The generator adds missing types and services; a module that does not match its .proto file remains, so that
    the check finds it."""
    root = copy_of_api(tmp_path, "v0/changelog/changelog.proto", "v0/bulk/bulk.proto")
    folder = root / "peloton/api/v0/changelog"
    module = folder / "changelog_pb2.py"
    module.write_text("# old\n")
    (folder / "changelog_pb2.pyi").unlink()
    (root / "peloton/api/v0/bulk/bulk_pb2_grpc.py").unlink()

    assert generate.main(["--ignored"], root) == 0

    assert module.read_text() == "# old\n"
    assert (folder / "changelog_pb2.pyi").exists()
    assert (root / "peloton/api/v0/bulk/bulk_pb2_grpc.py").exists()
    assert generate.main(["--check"], root) == 1


def test_a_broken_proto_file_is_refused_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error is the compiler's message with file and line."""
    root = copy_of_api(tmp_path, "v0/changelog/changelog.proto")
    (root / "peloton/api/v0/broken.proto").write_text('syntax = "proto3";\nmessage Broken { int32 a }\n')
    assert generate.main([], root) == 2
    assert "v0/broken.proto:2:" in capsys.readouterr().err
