"""The folder of a program cache: files that many processes write, damage, prune and refuse."""

import hashlib
import logging
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from filterjit import __main__ as command_line
from filterjit._aot._program_folder import MAX_VERSIONS, ProgramFolder
from support.processes import environment, run_code, started

KEY = b"a key"
posix = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="owners and modes are of POSIX")


def found(folder: ProgramFolder, key: bytes = KEY) -> list[bytes]:
    return list(folder.find(key))


def files(path: Path) -> list[Path]:
    return sorted(one for one in path.rglob("*") if one.is_file())


def used_at(path: Path, contents: bytes, when: float) -> None:
    """Sets the time of the last use of the file of `contents`."""
    name = hashlib.sha256(contents).hexdigest()[:32]
    (file,) = path.rglob(f"*-{name}.fjit")
    os.utime(file, (when, when))


def messages(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno == level]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "cache"


@pytest.fixture
def folder(path: Path) -> ProgramFolder:
    return ProgramFolder(path)


# ---- writing and finding ----


def test_what_was_written_is_found(folder: ProgramFolder, path: Path) -> None:
    assert found(folder) == [] and not path.exists()
    folder.write(KEY, b"contents", "f")
    folder.write(b"another", b"", "g")
    assert found(folder) == [b"contents"] and found(folder, b"another") == [b""]
    assert found(ProgramFolder(str(path))) == [b"contents"]
    assert found(folder, b"a ke") == []
    for file in files(path):
        assert file.name.startswith(tuple(hashlib.sha256(k).hexdigest() for k in (KEY, b"another")))


def test_versions_of_one_key_come_in_the_order_of_their_last_use(
    folder: ProgramFolder, path: Path
) -> None:
    for i, contents in enumerate((b"one", b"two", b"three")):
        folder.write(KEY, contents, "f")
        used_at(path, contents, 1000.0 + i)
    assert found(folder) == [b"three", b"two", b"one"]
    folder.used(KEY, b"one")
    assert found(folder) == [b"one", b"three", b"two"]
    folder.used(KEY, b"never written")
    assert len(found(folder)) == 3


def test_the_same_program_twice_is_one_file(folder: ProgramFolder, path: Path) -> None:
    for _ in range(2):
        folder.write(KEY, b"contents", "f")
    assert len(files(path)) == 1


def test_old_versions_of_a_key_are_removed(folder: ProgramFolder, path: Path) -> None:
    for i in range(MAX_VERSIONS + 3):
        folder.write(KEY, b"%d" % i, "f")
        used_at(path, b"%d" % i, 1000.0 + i)
    folder.write(b"another", b"contents", "f")
    assert found(folder) == [b"%d" % i for i in range(MAX_VERSIONS + 2, 2, -1)]
    assert found(folder, b"another") == [b"contents"]


def test_the_folder_is_that_of_the_moment_in_which_it_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = ProgramFolder("relative")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    folder.write(KEY, b"contents", "f")
    assert len(files(tmp_path / "relative")) == 1
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ProgramFolder("~/relative").path == str(tmp_path / "relative")


@pytest.mark.parametrize("wrong", [None, 3, b"folder"])
def test_no_path(wrong: object) -> None:
    with pytest.raises(TypeError, match="str"):
        ProgramFolder(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["", "a\0b"])
def test_impossible_paths(wrong: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(wrong))):
        ProgramFolder(wrong)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, None])
def test_wrong_bounds(tmp_path: Path, wrong: object) -> None:
    with pytest.raises(ValueError, match="max_bytes"):
        ProgramFolder(tmp_path, max_bytes=wrong)  # type: ignore[arg-type]


# ---- damage ----


def test_each_damaged_byte_is_a_miss(
    folder: ProgramFolder, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Said once for each file, where somebody wants to know."""
    caplog.set_level(logging.DEBUG, "filterjit")
    folder.write(KEY, b"contents", "f")
    folder.write(KEY, b"whole", "f")
    used_at(path, b"contents", time.time() + 60)
    (file,) = path.rglob(f"*-{hashlib.sha256(b'contents').hexdigest()[:32]}.fjit")
    data = file.read_bytes()
    for at in range(len(data)):
        for bit in (0, 7):
            file.write_bytes(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
            assert found(folder) == [b"whole"]
        file.write_bytes(data[:at])
        assert found(folder) == [b"whole"]
    file.write_bytes(data + b"\0")
    assert found(folder) == [b"whole"]
    assert len(messages(caplog, logging.DEBUG)) == 1
    assert str(file) in messages(caplog, logging.DEBUG)[0]
    assert messages(caplog, logging.WARNING) == []
    folder.write(KEY, b"contents", "f")
    assert sorted(found(folder)) == [b"contents", b"whole"]


def test_a_file_of_another_key(folder: ProgramFolder, path: Path) -> None:
    folder.write(KEY, b"contents", "f")
    folder.write(b"another", b"of another", "f")
    one, other = (next(path.rglob(f"{hashlib.sha256(k).hexdigest()}*")) for k in (KEY, b"another"))
    one.write_bytes(other.read_bytes())
    one.chmod(0o600)
    assert found(folder) == [] and found(folder, b"another") == [b"of another"]


def test_what_is_no_file(folder: ProgramFolder, path: Path, tmp_path: Path) -> None:
    """A folder, a link and a pipe under the name of a program are no programs."""
    folder.write(KEY, b"contents", "f")
    (file,) = files(path)
    data = file.read_bytes()
    file.unlink()
    file.mkdir()
    assert found(folder) == []
    file.rmdir()
    (tmp_path / "elsewhere").write_bytes(data)
    file.symlink_to(tmp_path / "elsewhere")
    assert found(folder) == []
    file.unlink()
    os.mkfifo(file, 0o600)
    assert found(folder) == []


# ---- who may write ----


@posix
def test_only_the_owner_can_read_and_write(folder: ProgramFolder, path: Path) -> None:
    before = os.umask(0)
    try:
        folder.write(KEY, b"contents", "f")
    finally:
        os.umask(before)
    (file,) = files(path)
    modes = [one.stat().st_mode & 0o777 for one in (path, file.parent, file)]
    assert modes == [0o700, 0o700, 0o600]
    assert found(folder) == [b"contents"]


@posix
@pytest.mark.parametrize("mode", [0o770, 0o702, 0o1777])
def test_a_folder_that_others_can_write(
    folder: ProgramFolder, path: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    folder.write(KEY, b"contents", "f")
    path.chmod(mode)
    refusing = ProgramFolder(path)
    for _ in range(3):
        assert found(refusing) == []
        refusing.write(KEY, b"other", "f")
    (said,) = messages(caplog, logging.WARNING)
    assert str(path) in said and f"{mode:04o}" in said and f"chmod go-w {path}" in said
    path.chmod(0o755)
    assert found(ProgramFolder(path)) == [b"contents"]


@posix
def test_a_file_that_others_can_write(
    folder: ProgramFolder, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "filterjit")
    folder.write(KEY, b"contents", "f")
    (file,) = files(path)
    file.chmod(0o620)
    assert found(folder) == []
    assert "chmod go-w" in messages(caplog, logging.DEBUG)[0]
    file.chmod(0o644)
    assert found(folder) == [b"contents"]


@posix
@pytest.mark.skipif(os.name == "posix" and os.geteuid() != 0, reason="only root gives files away")
def test_what_belongs_to_others(
    folder: ProgramFolder, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.write(KEY, b"contents", "f")
    (file,) = files(path)
    os.chown(file, 4321, 4321)
    assert found(folder) == []
    os.chown(file, 0, 0)
    os.chown(path, 4321, 4321)
    assert found(ProgramFolder(path)) == []
    (said,) = messages(caplog, logging.WARNING)
    assert "belongs to the user 4321" in said


# ---- what the system refuses ----


def test_a_folder_that_cannot_be_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    folder = ProgramFolder(tmp_path / "file" / "cache")
    for _ in range(3):
        assert found(folder) == []
        folder.write(KEY, b"contents", "f")
    (said,) = messages(caplog, logging.WARNING)
    assert str(folder.path) in said and "Not a directory" in said


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self can be read and not written")
def test_a_folder_that_can_only_be_read(caplog: pytest.LogCaptureFixture) -> None:
    folder = ProgramFolder(f"/proc/{os.getpid()}")
    for _ in range(3):
        folder.write(KEY, b"contents", "f")
        folder.used(KEY, b"contents")
        assert found(folder) == []
    assert len(messages(caplog, logging.WARNING)) == 1


def test_a_full_disk(folder: ProgramFolder, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A limit on the size of files stands for it."""
    folder.write(KEY, b"contents", "f")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        for i in range(3):
            folder.write(KEY, b"%d" % i * 10_000, "f")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    (said,) = messages(caplog, logging.WARNING)
    assert str(path) in said and "File too large" in said
    assert found(folder) == [b"contents"] and len(files(path)) == 1


# ---- the bound ----


def test_programs_that_were_used_longest_ago_make_room(path: Path) -> None:
    folder = ProgramFolder(path, max_bytes=100_000)
    folder.write(b"0", bytes(10_000), "f")
    for i in range(1, 40):
        folder.write(b"%d" % i, bytes([i]) * 10_000, "f")
        used_at(path, bytes([i]) * 10_000, 1000.0 + i)
        assert sum(file.stat().st_size for file in files(path)) <= 100_000
        folder.used(b"0", bytes(10_000))
    assert found(folder, b"0") == [bytes(10_000)]
    assert found(folder, b"39") and not found(folder, b"20")
    assert len(files(path)) >= 7


def test_a_program_that_is_larger_than_the_bound(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "filterjit")
    folder = ProgramFolder(path, max_bytes=1000)
    folder.write(KEY, b"small", "f")
    folder.write(KEY, bytes(2000), "large")
    assert found(folder) == [b"small"]
    assert "large" in messages(caplog, logging.DEBUG)[0]


def test_a_smaller_bound_holds_from_the_first_write_on(path: Path) -> None:
    for i in range(20):
        ProgramFolder(path).write(b"%d" % i, bytes(10_000), "f")
    ProgramFolder(path, max_bytes=50_000).write(KEY, bytes(10_000), "f")
    assert sum(file.stat().st_size for file in files(path)) <= 50_000


def test_nothing_else_is_ever_removed(path: Path) -> None:
    folder = ProgramFolder(path, max_bytes=30_000)
    others = [path / "mine.txt", path / "ab" / "mine.fjit", path / ("0" * 64 + "-.fjit"),
              path / "mine" / ("0" * 64 + "-" + "0" * 32 + ".fjit"), path / ".filterjit-mine"]  # fmt: skip
    for file in others:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.write_bytes(bytes(50_000))
        os.utime(file, (1.0, 1.0))
    path.chmod(0o700)
    for i in range(10):
        folder.write(b"%d" % i, bytes(10_000), "f")
    folder.prune(0)
    assert files(path) == sorted(others)


# ---- processes ----


_WRITES = """
import sys
from filterjit._aot._program_folder import ProgramFolder
folder = ProgramFolder(sys.argv[1], max_bytes=int(sys.argv[2]))
for i in range(100):
    key = b"%d" % (i % 10)
    folder.write(key, key * (5_000 + i), "f")
    for contents in folder.find(key):
        assert contents == key * len(contents), contents[:20]
    if sys.argv[3:] and i == 50:
        print("half", flush=True)
"""


def test_processes_that_write_and_prune_at_once(path: Path) -> None:
    env = environment()
    command = [sys.executable, "-W", "error", "-c", _WRITES, str(path), "200000"]
    running = [
        subprocess.Popen(command, env=env, stderr=subprocess.PIPE, encoding="utf-8")
        for _ in range(4)
    ]
    try:
        said = [process.communicate(timeout=120)[1] for process in running]
    finally:
        for process in running:
            process.kill()
    assert said == [""] * 4 and [process.returncode for process in running] == [0] * 4
    folder = ProgramFolder(path)
    assert any(found(folder, b"%d" % i) for i in range(10))
    assert [file for file in files(path) if file.suffix != ".fjit"] == []


def test_a_process_that_is_killed_while_writing(path: Path) -> None:
    """A file is whole or has another name, which a later process removes."""
    code = _WRITES.replace("range(100)", "range(10**9)")
    for _ in range(3):
        with started("-c", code, str(path), str(10**9), "say", env=environment()) as process:
            assert process.stdout is not None and process.stdout.readline() == "half\n"
            time.sleep(random.random() / 20)
    folder = ProgramFolder(path)
    for i in range(10):
        for contents in found(folder, b"%d" % i):
            assert contents == (b"%d" % i) * len(contents)
    (path / "ab").mkdir(exist_ok=True)
    abandoned, young = (path / "ab" / f".filterjit-{c * 16}" for c in "01")
    for file in (abandoned, young):
        file.write_bytes(b"half of a fi")
    os.utime(abandoned, (1.0, 1.0))
    folder.write(KEY, b"contents", "f")
    assert not abandoned.exists() and young.exists()


def test_a_forked_process(path: Path) -> None:
    run_code(
        """
        import os, sys
        from filterjit._aot._program_folder import ProgramFolder
        folder = ProgramFolder(sys.argv[1])
        folder.write(b"1", b"parent", "f")
        child = os.fork()
        if child == 0:
            folder.write(b"1", b"child", "f")
            os._exit(0)
        os.waitpid(child, 0)
        assert sorted(folder.find(b"1")) == [b"child", b"parent"]
        """,
        path,
        options=("-W", "ignore"),
    )


# ---- the command ----


def test_the_command(folder: ProgramFolder, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.write(KEY, bytes(20_000), "train.step")
    folder.write(b"another", bytes(1_000_000), "train\x1b[31m.loss")
    used_at(path, bytes(20_000), time.time() - 7300)
    assert command_line.main(["cache", str(path)]) == 0
    head, loss, step, total = capsys.readouterr().out.splitlines()
    assert head.split() == ["program", "size", "last", "used", "written", "by"]
    assert loss.startswith("train?[31m.loss  1.00 MB")
    assert step.startswith("train.step") and "0.02 MB" in step and "2 hours ago" in step
    assert f"python {'.'.join(map(str, sys.version_info[:3]))}" in step
    assert total == "2 programs, 1.02 MB"
    assert command_line.main(["cache", str(path), "--prune", "1.1M"]) == 0
    assert "removed 0.00 MB; left: 2 programs" in capsys.readouterr().out
    assert command_line.main(["cache", str(path), "--prune", "990K"]) == 0
    assert "removed 0.02 MB; left: 1 program, 1.00 MB" in capsys.readouterr().out
    (file,) = files(path)
    data = file.read_bytes()
    file.write_bytes(data[:20])
    assert command_line.main(["cache", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("(damaged)")
    assert command_line.main(["cache", str(path), "--clear"]) == 0
    assert command_line.main(["cache", str(path)]) == 0
    assert "no programs" in capsys.readouterr().out


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
