"""Bounded reads of files that people name."""

from __future__ import annotations

import os
import threading
from io import BytesIO
from pathlib import Path

import pytest

from peloton.errors import InvalidArgument
from peloton.files import (
    CHECK_S,
    FileTooLarge,
    ReloadedFiles,
    read_file,
    read_private_file,
    read_stamp,
    read_stream,
    read_text_file,
    write_private_file,
)


def test_a_file_up_to_the_limit_is_read(tmp_path: Path) -> None:
    """The limit itself fits, and one byte more does not, be it a file or a stream."""
    path = tmp_path / "a"
    path.write_bytes(b"x" * 10)

    assert [b"x" * 10] * 3 == [
        read_file(path, "file", 10),
        read_private(path),
        read_stream(BytesIO(b"x" * 10), "-", 10),
    ]
    with pytest.raises(FileTooLarge, match=f"file {path} has more than 9 bytes, its limit"):
        read_file(path, "file", 9)
    with pytest.raises(FileTooLarge, match="standard input has more than 9 bytes"):
        read_stream(BytesIO(b"x" * 10), "standard input", 9)


def read_private(path: Path) -> bytes:
    path.chmod(0o600)
    return read_private_file(path, "file", 10)


def test_devices_and_pipes_without_an_end_are_refused(tmp_path: Path) -> None:
    """An endless device ends at the limit, a pipe without a writer and one whose writer stays at the time limit."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    with pytest.raises(FileTooLarge, match="keyring /dev/zero has more than 1,000 bytes"):
        read_file("/dev/zero", "keyring", 1_000)
    with pytest.raises(InvalidArgument, match=r"has not ended within 0\.1 s"):
        read_file(pipe, "keyring", 1_000, pipe_s=0.1)
    writer = os.open(pipe, os.O_RDWR)
    os.write(writer, b"some")
    with pytest.raises(InvalidArgument, match=f"keyring {pipe} has not ended within 0.1 s"):
        read_file(pipe, "keyring", 1_000, pipe_s=0.1)
    os.close(writer)


def test_a_pipe_that_ends_is_read(tmp_path: Path) -> None:
    """Shells give the output of a command as a pipe."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=[b"x" * 200_000])
    writer.start()

    assert 200_000 == len(read_file(pipe, "file", 200_000))
    writer.join()


def test_faults_of_the_system_and_of_the_text(tmp_path: Path) -> None:
    """Folders and missing files are errors of the system that have the name; bytes that are no UTF-8 are counted."""
    (tmp_path / "a").write_bytes(b"abc\xff")

    with pytest.raises(IsADirectoryError) as folder:
        read_file(tmp_path, "file")
    assert str(tmp_path) == folder.value.filename
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "b", "file")
    with pytest.raises(InvalidArgument, match="a is not UTF-8 text: byte 3 is no part of it"):
        read_text_file(tmp_path / "a", "file")
    name = tmp_path / "\x1b[31m"
    name.write_bytes(b"xx")
    with pytest.raises(InvalidArgument, match=r"file .*x1b\[31m has more"):
        read_file(name, "file", 1)


def test_a_private_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """The file is for its owner alone, replaces another one at once, and no part is left, also where it must be new."""
    path = tmp_path / "key"
    write_private_file(path, b"one", is_new=True)
    stamp = read_stamp(path)
    with pytest.raises(FileExistsError):
        write_private_file(path, b"two", is_new=True)
    assert (b"one", 0o600, stamp) == (path.read_bytes(), path.stat().st_mode & 0o777, read_stamp(path))

    write_private_file(path, b"three", mode=0o640)

    assert (b"three", 0o640) == (path.read_bytes(), path.stat().st_mode & 0o777)
    assert stamp != read_stamp(path)
    assert [path] == list(tmp_path.iterdir())


class Changing:
    """Two files, what a process that follows them has noted, and a clock."""

    def __init__(self, folder: Path) -> None:
        self.paths = [folder / "first", folder / "second"]
        self.noted: list[str] = []
        self.now_s = 0.0
        self.write("a", "b")
        self.files = ReloadedFiles(self.paths, self._read, lambda fault: self.noted.append(str(fault)), self._clock)

    def write(self, *contents: str) -> None:
        for path, content in zip(self.paths, contents, strict=True):
            write_private_file(path, content.encode())

    def get(self) -> str:
        """Return the content after the time between two looks."""
        self.now_s += CHECK_S
        return self.files.get()

    def _clock(self) -> float:
        return self.now_s

    def _read(self) -> str:
        content = "".join(path.read_text() for path in self.paths)
        if content != content.lower():
            raise ValueError(f"{content} is not lower case")
        return content


def test_files_are_read_again_when_one_has_changed(tmp_path: Path) -> None:
    """A change is seen at the next look, and one that leaves the content as it is counts for nothing."""
    changing = Changing(tmp_path)
    changing.write("a", "c")
    found = [changing.files.get(), changing.get()]
    changing.write("a", "c")
    found.append(changing.get())
    changing.write("d", "c")

    assert ["ab", "ac", "ac", "dc"] == [*found, changing.files.refresh()]
    assert (3, ["None"] * 2) == (changing.files.generation, changing.noted)


def test_a_bad_content_keeps_the_one_before(tmp_path: Path) -> None:
    """A fault is noted once, at the second look that finds it, until there is a good content."""
    changing = Changing(tmp_path)
    changing.write("a", "B")
    found = [changing.get() for _ in range(3)]
    faults = [str(changing.files.fault)]
    changing.paths[1].unlink()
    found.append(changing.get())
    faults.append(type(changing.files.fault).__name__)
    changing.write("a", "c")

    assert ["ab"] * 4 + ["ac"] == [*found, changing.get()]
    assert ["aB is not lower case", "FileNotFoundError"] == faults
    assert ["aB is not lower case", "None"] == changing.noted
    assert changing.files.fault is None


def test_a_fault_of_one_read_is_not_recorded(tmp_path: Path) -> None:
    """Files that belong together are seldom replaced in the same instant."""
    changing = Changing(tmp_path)
    changing.write("a", "B")
    changing.get()
    changing.write("a", "c")

    assert ("ac", ["None"]) == (changing.get(), changing.noted)


def test_files_that_change_while_they_are_read_are_refused(tmp_path: Path) -> None:
    """Half of an old content and half of a new one are no content."""
    path = tmp_path / "file"
    path.write_text("a")

    def read() -> str:
        content = path.read_text()
        write_private_file(path, b"b")
        return content

    with pytest.raises(InvalidArgument, match="file: changes while it is read"):
        ReloadedFiles([path], read)
