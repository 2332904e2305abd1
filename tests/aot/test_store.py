"""The folder of a program cache: files that many processes write, damage, prune and refuse."""

import hashlib
import logging
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from aot_support import HERE, full_disk

from filterjit import __main__ as command_line
from filterjit._aot._store import PROVEN, TRACED, Entry, Store
from support.processes import environment, run, started
from support.threads import at_once

posix = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="owners and modes are of POSIX")


def header(name: str = "f", **arguments: str) -> dict[str, Any]:
    info = {"name": name, "filterjit": "0", "python": "3", "machine": {"jax": "0"}}
    return {"info": {**info, "arguments": list(map(list, arguments.items()))}}


def digest(name: Any) -> str:
    return hashlib.sha256(repr(name).encode()).hexdigest()


KEY = digest("a key")


def write(store: Store, contents: bytes, key: str = KEY, name: str = "f") -> None:
    """Writes a program and an entry that leads to it."""
    program = digest(contents)
    store.add_program(program, header(name), [contents])
    store.set_entry(key, Entry(program))


def found(store: Store, key: str = KEY) -> bytes | None:
    """Returns the program to which a key leads."""
    entry = store.entry(key)
    program = None if entry is None else store.program(entry.program)
    return None if program is None else program[1][0]


def files(path: Path, pattern: str = "*") -> list[Path]:
    return sorted(one for one in path.rglob(pattern) if one.is_file())


def used_at(path: Path, name: str, when: float) -> None:
    """Sets the time of the last use of the files of a digest."""
    for file in path.rglob(f"{name}.*"):
        os.utime(file, (when, when))


def messages(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno == level]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "cache"


@pytest.fixture
def store(path: Path) -> Store:
    return Store(path)


# ---- writing and finding ----


def test_what_was_written_is_found(store: Store, path: Path) -> None:
    assert found(store) is None and not path.exists()
    write(store, b"contents")
    write(store, b"", digest("another"))
    assert found(store) == b"contents" and found(store, digest("another")) == b""
    assert found(Store(str(path))) == b"contents"
    assert store.entry(digest("a ke")) is None and store.program(digest(1)) is None
    found_header, _ = store.program(digest(b"contents")) or ({}, [])
    assert found_header == {**found_header, **header(), "digest": digest(b"contents")}


def test_an_entry_is_replaced(store: Store, path: Path) -> None:
    for entry in (
        Entry(digest(1)),
        Entry(digest(2), PROVEN, digest(1)),
        Entry(digest(3), TRACED),
    ):
        store.set_entry(KEY, entry)
        assert store.entry(KEY) == entry
    assert len(files(path)) == 1


def test_the_folder_is_that_of_the_moment_in_which_it_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store("relative")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    write(store, b"contents")
    assert len(files(tmp_path / "relative")) == 2
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Store("~/relative").path == str(tmp_path / "relative")


def test_wrong_arguments(tmp_path: Path) -> None:
    for path, error in ((None, TypeError), (3, TypeError), (b"a", TypeError), ("", ValueError),
                        ("a\0b", ValueError)):  # fmt: skip
        with pytest.raises(error):
            Store(path)  # type: ignore[arg-type]
    for wrong in (0, 1.5, True, None):
        with pytest.raises(ValueError, match="max_bytes"):
            Store(tmp_path, max_bytes=wrong)  # type: ignore[arg-type]


# ---- damage ----


@pytest.mark.parametrize("suffix", ["fjit", "entry"])
def test_each_damaged_byte_is_a_miss(
    store: Store, path: Path, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Said once for each file, where somebody wants to know."""
    caplog.set_level(logging.DEBUG, "filterjit")
    write(store, b"contents")
    (file,) = files(path, f"*.{suffix}")
    data = file.read_bytes()
    for at in range(len(data)):
        for bit in (0, 7):
            file.write_bytes(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
            assert found(store) is None
        file.write_bytes(data[:at])
        assert found(store) is None
    file.write_bytes(data + b"\0")
    assert found(store) is None
    (said,) = messages(caplog, logging.DEBUG)
    assert str(file) in said and messages(caplog, logging.WARNING) == []
    write(store, b"contents")
    assert found(store) == b"contents"


@pytest.mark.parametrize("suffix", ["fjit", "entry"])
def test_a_file_under_another_name(store: Store, path: Path, suffix: str) -> None:
    write(store, b"contents")
    write(store, b"other", digest("another"))
    names = (
        (digest(b"contents"), digest(b"other")) if suffix == "fjit" else (KEY, digest("another"))
    )
    one, other = (next(path.rglob(f"{name}.{suffix}")) for name in names)
    one.write_bytes(other.read_bytes())
    assert found(store) is None and found(store, digest("another")) == b"other"


def test_what_is_no_file(store: Store, path: Path, tmp_path: Path) -> None:
    """A folder, a link and a pipe under the name of a program are no programs."""
    write(store, b"contents")
    (file,) = files(path, "*.fjit")
    data = file.read_bytes()
    file.unlink()
    file.mkdir()
    assert found(store) is None
    file.rmdir()
    (tmp_path / "elsewhere").write_bytes(data)
    file.symlink_to(tmp_path / "elsewhere")
    assert found(store) is None
    file.unlink()
    os.mkfifo(file, 0o600)
    assert found(store) is None


# ---- who may write ----


@posix
def test_only_the_owner_can_read_and_write(store: Store, path: Path) -> None:
    before = os.umask(0)
    try:
        write(store, b"contents")
    finally:
        os.umask(before)
    for file in files(path):
        modes = [one.stat().st_mode & 0o777 for one in (path, file.parent, file)]
        assert modes == [0o700, 0o700, 0o600]
    assert found(store) == b"contents"


root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="gives files away"
)
OTHERS = [
    ("folder", lambda path: path.chmod(0o770), "mode 0770", "chmod go-w"),
    ("folder", lambda path: path.chmod(0o702), "0702", "chmod go-w"),
    ("folder", lambda path: path.chmod(0o1777), "1777", "chmod go-w"),
    ("file", lambda path: path.chmod(0o620), "0620", "chmod go-w"),
    pytest.param("folder", lambda path: os.chown(path, 4321, 4321), "belongs to the user 4321", "",
                 marks=root),
    pytest.param("file", lambda path: os.chown(path, 4321, 4321), "belongs to the user 4321", "",
                 marks=root),
]  # fmt: skip


@posix
@pytest.mark.parametrize(("what", "change", "words", "advice"), OTHERS)
def test_what_others_can_write(
    store: Store, path: Path, what: str, change: Any, words: str, advice: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """A folder is warned of, once; a file is told where somebody wants to know."""
    caplog.set_level(logging.DEBUG, "filterjit")
    write(store, b"contents")
    (file,) = files(path, "*.fjit")
    changed = path if what == "folder" else file
    change(changed)
    refusing = Store(path)
    for _ in range(3):
        assert found(refusing) is None
        if what == "folder":
            write(refusing, b"other")
    (said,) = messages(caplog, logging.WARNING if what == "folder" else logging.DEBUG)
    assert str(changed) in said and words in said and advice in said
    os.chown(changed, os.geteuid(), -1)
    changed.chmod(0o755)
    assert found(Store(path)) == b"contents"


def test_a_system_that_does_not_tell_who_can_write(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write(store, b"contents")
    monkeypatch.delattr(os, "geteuid", raising=False)
    assert found(Store(path)) is None
    (said,) = messages(caplog, logging.WARNING)
    assert str(path) in said and "are for POSIX systems" in said


# ---- what the system refuses ----


@pytest.mark.parametrize("parent", ["file", "/proc/self"])
def test_a_folder_that_cannot_be_made(
    tmp_path: Path, parent: str, caplog: pytest.LogCaptureFixture
) -> None:
    if parent != "file" and sys.platform != "linux":
        pytest.skip("/proc/self can be read and not written")
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / parent / ("cache" if parent == "file" else ""))
    for _ in range(3):
        assert found(store) is None
        write(store, b"contents")
    (said,) = messages(caplog, logging.WARNING)
    assert str(store.path) in said and (parent != "file" or "Not a directory" in said)


def test_a_full_disk(store: Store, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(store, b"contents")
    with full_disk():
        for i in range(3):
            write(store, b"%d" % i * 10_000)
    (said,) = messages(caplog, logging.WARNING)
    assert str(path) in said and "File too large" in said
    assert found(store) == b"contents" and len(files(path)) == 2


# ---- the bound ----


def test_programs_that_were_used_longest_ago_make_room(path: Path) -> None:
    store = Store(path, max_bytes=100_000)
    write(store, bytes(10_000), digest(0))
    for i in range(1, 40):
        write(store, bytes([i]) * 10_000, digest(i))
        used_at(path, digest(i), 1000.0 + i)
        used_at(path, digest(bytes([i]) * 10_000), 1000.0 + i)
        assert sum(file.stat().st_size for file in files(path)) <= 100_000
        assert found(store, digest(0)) == bytes(10_000)  # which uses it
    assert found(store, digest(39)) and not found(store, digest(20))
    assert len(files(path, "*.fjit")) >= 6


def test_a_program_that_is_larger_than_the_bound(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "filterjit")
    store = Store(path, max_bytes=2000)
    write(store, b"small")
    write(store, bytes(4000), digest("another"))
    assert found(store) == b"small" and found(store, digest("another")) is None
    assert "is larger than a program cache may be" in messages(caplog, logging.DEBUG)[0]


def test_nothing_else_is_ever_removed(path: Path) -> None:
    store = Store(path, max_bytes=30_000)
    others = [path / "mine.txt", path / "ab" / "mine.fjit", path / ("0" * 64 + "-.fjit"),
              path / "mine" / ("0" * 64 + ".fjit"), path / ".filterjit-mine"]  # fmt: skip
    for file in others:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.write_bytes(bytes(50_000))
        os.utime(file, (1.0, 1.0))
    path.chmod(0o700)
    for i in range(10):
        write(store, b"%d" % i * 5_000, digest(i))
    store.prune(0)
    assert files(path) == sorted(others)


# ---- processes ----


_WRITES = """
import sys
from test_store import Store, digest, found, write
store = Store(sys.argv[1], max_bytes=int(sys.argv[2]))
for i in range(int(sys.argv[3])):
    key = digest(i % 10)
    write(store, b"%d" % (i % 10) * (5_000 + i), key)
    contents = found(store, key)
    assert contents is None or contents == b"%d" % (i % 10) * len(contents), contents[:20]
    if i == 50:
        print("half", flush=True)
"""
ENVIRONMENT = environment([HERE])


def test_processes_that_write_and_prune_at_once(path: Path) -> None:
    arguments = ("-W", "error", "-c", _WRITES, str(path), "200000", "100")
    for done in at_once(4, lambda _: run(*arguments, env=ENVIRONMENT, timeout=120), 200):
        assert (done.stdout, done.stderr) == ("half\n", "")
    store = Store(path)
    assert any(found(store, digest(i)) for i in range(10))
    assert [file for file in files(path) if file.suffix not in (".fjit", ".entry")] == []


def test_a_process_that_is_killed_while_writing(path: Path) -> None:
    """A file is whole or has another name, which a later process removes."""
    arguments = "-c", _WRITES, str(path), str(10**9), str(10**9)
    for _ in range(3):
        with started(*arguments, env=ENVIRONMENT) as process:
            assert process.stdout is not None and process.stdout.readline() == "half\n"
            time.sleep(random.random() / 20)
    store = Store(path)
    for i in range(10):
        contents = found(store, digest(i))
        assert contents is not None and contents == b"%d" % i * len(contents)
    (path / "ab").mkdir(exist_ok=True)
    abandoned, young = (path / "ab" / f".filterjit-{c * 16}" for c in "01")
    for file in (abandoned, young):
        file.write_bytes(b"half of a fi")
    os.utime(abandoned, (1.0, 1.0))
    write(store, b"contents")
    assert not abandoned.exists() and young.exists()


# ---- the command ----


def test_the_command(store: Store, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(store, bytes(20_000), name="train.step")
    store.set_entry(digest("another"), Entry(digest(bytes(20_000)), PROVEN))
    store.add_program(digest(1), header("train\x1b[31m.loss"), [bytes(1_000_000)])
    used_at(path, digest(bytes(20_000)), time.time() - 7300)
    assert command_line.main(["cache", str(path)]) == 0
    head, loss, step, total = capsys.readouterr().out.splitlines()
    assert head.split() == ["program", "calls", "size", "last", "used", "written", "by"]
    assert loss.startswith("train?[31m.loss") and "none" in loss and "1.00 MB" in loss
    assert step.startswith("train.step") and "0.02 MB" in step and "2 hours ago" in step
    assert "1 on trial" in step and "1 proven" in step and "python 3" in step
    assert total == "2 programs, 1.02 MB"
    assert command_line.main(["cache", str(path), "--prune", "1.1M"]) == 0
    assert "removed 0.00 MB; left: 2 programs" in capsys.readouterr().out
    assert command_line.main(["cache", str(path), "--prune", "990K"]) == 0
    assert "removed 0.02 MB; left: 1 program, 1.00 MB" in capsys.readouterr().out
    (file,) = files(path, "*.fjit")
    data = file.read_bytes()
    file.write_bytes(data[:20])
    assert command_line.main(["cache", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("(damaged)")
    assert command_line.main(["cache", str(path), "--clear"]) == 0
    assert command_line.main(["cache", str(path)]) == 0
    assert "no programs" in capsys.readouterr().out


def test_the_command_tells_programs_apart(
    store: Store, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the arguments in which those of one function differ."""
    small, large = "an array float32[1,2]", "an array float32[8,2]"
    rows = [
        ("step", {"w": small, "x": small, "n": "the int 2"}, "step n=2, x=float32[1,2]"),
        ("step", {"w": small, "x": large, "n": "the int 2"}, "step n=2, x=float32[8,2]"),
        ("step", {"w": small, "x": large, "n": "the float 2.0"}, "step n=2.0, x=float32[8,2]"),
        ("long", {"n": "the str " + "a" * 70}, "long n=" + "a" * 37 + "..."),
        ("long", {"n": "None"}, "long n=None"),
        ("alone", {"x": small}, "alone"),
    ]
    for i, (name, arguments, _) in enumerate(rows):
        store.add_program(digest(i), header(name, **arguments), [b""])
    assert command_line.main(["cache", str(path)]) == 0
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for _, _, words in rows:
        assert any(line.startswith(f"{words} none") for line in shown), (words, shown)


def test_what_the_command_refuses(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["cache", str(path)]) == 1
    assert str(path) in capsys.readouterr().err
    path.mkdir(parents=True)
    path.chmod(0o777)
    assert command_line.main(["cache", str(path), "--clear"]) == 1
    assert "chmod go-w" in capsys.readouterr().err
    for wrong in ("x", "-1", "1X", "nan", ""):
        with pytest.raises(SystemExit, match="2"):
            command_line.main(["cache", str(path), f"--prune={wrong}"])
        assert f"{wrong!r} is no size, such as 500M or 2G" in capsys.readouterr().err
