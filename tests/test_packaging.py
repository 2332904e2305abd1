"""What is built and published: the files of the sdist, the metadata, the compiler's flags, and the
message where the extension cannot be compiled. Needs setuptools, and neither JAX nor Equinox."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from email import message_from_string
from email.message import Message
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION = "Programming Language :: Python :: 3."
MINORS = ["3." + c.removeprefix(VERSION) for c in PROJECT["project"]["classifiers"] if VERSION in c]
FREE_THREADED = ["3.14t", "3.15t"]
PATTERNS = ["*.md", "csrc/README.md", "benchmarks/README.md", "examples/README.md", "docs/**/*.md"]
DOCUMENTS = sorted(
    p.relative_to(ROOT).as_posix() for pattern in PATTERNS for p in ROOT.glob(pattern)
)


def run(*command: object, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


# ---- the sdist ----


@pytest.fixture(scope="module")
def egg_info(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which setuptools describes the package and lists the files of its sdist."""
    folder = tmp_path_factory.mktemp("egg")
    done = run(sys.executable, "setup.py", "-q", "egg_info", "--egg-base", folder)
    assert done.returncode == 0, done.stderr
    return folder / "filterjit.egg-info"


@pytest.fixture(scope="module")
def files(egg_info: Path) -> set[str]:
    return set((egg_info / "SOURCES.txt").read_text().splitlines())


@pytest.fixture(scope="module")
def metadata(egg_info: Path) -> Message:
    return message_from_string((egg_info / "PKG-INFO").read_text())


def test_the_sdist_has_every_file_that_is_in_git(files: set[str]) -> None:
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a git checkout")
    listed = run("git", "ls-files", "-z")
    assert listed.returncode == 0, listed.stderr
    tracked = {name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()}
    assert len(tracked) > 200
    assert tracked - files == set()


def test_the_sdist_has_no_products(files: set[str]) -> None:
    products = re.compile(r"\.(so|pyd|pyc|o|gcda|gcno)$|(^|/)(__pycache__|build|dist|\.venv)/")
    assert [name for name in files if products.search(name)] == []


def test_every_link_to_the_project_leads_to_a_file_of_the_sdist(files: set[str]) -> None:
    for document in DOCUMENTS:
        assert document in files
        text = (ROOT / document).read_text()
        text = re.sub(r"^```.*?^```$|`+[^`\n]+`+", "", text, flags=re.M | re.S)
        own = f"{PROJECT['project']['urls']['Source']}/blob/main/"
        all_links = re.findall(r"\]\(([^)\s]+)\)", text)
        links = [link for link in all_links if ":" not in link or link.startswith(own)]
        for link in links:
            folder = ROOT if link.startswith(own) else (ROOT / document).parent
            path, _, anchor = link.removeprefix(own).partition("#")
            target = folder / path if path else ROOT / document
            name = os.path.relpath(target, ROOT)
            inside = any(file == name or file.startswith(f"{name}/") for file in files)
            assert inside and target.exists(), f"{document} links to {link}"
            if anchor:
                headings = re.findall(r"^#+ (.*)$", target.read_text(), re.M)
                anchors = [re.sub(r"[^\w\- ]", "", h).lower().replace(" ", "-") for h in headings]
                assert anchor in anchors, f"{document} links to {link}"


def test_pypi_shows_no_relative_links(metadata: Message) -> None:
    """PyPI shows the README, and has none of the files that it links to."""
    assert metadata["Description-Content-Type"] == "text/markdown"
    shown = re.findall(r"\]\(([^)\s]+)\)", metadata.get_payload())
    urls = {url.split(", ")[0]: url.split(", ")[1] for url in metadata.get_all("Project-URL") or []}
    prefix = f"{urls['Source']}/blob/main/"
    assert all(link.startswith("https://") for link in shown)
    own = [link.removeprefix(prefix) for link in shown if link.startswith(prefix)]
    assert own == [
        link
        for link in re.findall(r"\]\(([^)\s]+)\)", (ROOT / "README.md").read_text())
        if ":" not in link
    ]
    assert urls["Changelog"].removeprefix(prefix) == "CHANGELOG.md"


def test_the_citation_is_of_this_version(metadata: Message) -> None:
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == metadata["Version"]
    assert citation["license"] == PROJECT["project"]["license"]
    assert f"## {metadata['Version']} (20" in (ROOT / "CHANGELOG.md").read_text()


# ---- metadata ----


def test_the_version_is_written_once(metadata: Message) -> None:
    source = (ROOT / "python" / "filterjit" / "__init__.py").read_text()
    assert f'\n__version__ = "{metadata["Version"]}"\n' in source
    assert "version" not in PROJECT["project"]


def test_the_versions_of_python_agree(metadata: Message) -> None:
    assert metadata["Requires-Python"] == f">={MINORS[0]}"
    built = PROJECT["tool"]["cibuildwheel"]["build"].split()
    assert built == [f"cp{minor.replace('.', '')}-*" for minor in [*MINORS, *FREE_THREADED]]


# ---- compiling ----


@pytest.fixture(scope="module")
def setup_py() -> dict[str, Any]:
    """The names that setup.py defines, without building anything."""
    setuptools = pytest.importorskip("setuptools")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(setuptools, "setup", lambda **kwargs: None)
        patch.chdir(ROOT)
        return runpy.run_path(str(ROOT / "setup.py"))


@pytest.fixture
def flags_for(setup_py: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    def flags_for(compiler_type: str) -> tuple[list[str], list[str]]:
        command = setup_py["BuildExtensions"](Distribution())
        command.compiler = SimpleNamespace(compiler_type=compiler_type)
        command.extensions = [Extension("x", ["x.c"])]
        monkeypatch.setattr(build_ext, "build_extensions", lambda self: None)
        command.build_extensions()
        [extension] = command.extensions
        return extension.extra_compile_args, extension.extra_link_args

    return flags_for


def test_flags_of_gcc_are_for_gcc_and_clang_only_and_own_flags_are_added(
    flags_for: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FILTERJIT_CFLAGS", raising=False)
    for gcc in ("unix", "mingw32", "cygwin"):
        assert {"-std=c11", "-Wall", "-fvisibility=hidden"} <= set(flags_for(gcc)[0])
    assert flags_for("msvc") == (["/O2", "/std:c11"], [])
    assert flags_for("another") == ([], [])
    monkeypatch.setenv("FILTERJIT_CFLAGS", "-O1 -fsanitize=address '-DX=a b'")
    compiled, linked = flags_for("unix")
    assert compiled[-3:] == ["-O1", "-fsanitize=address", "-DX=a b"]
    assert linked == ["-fsanitize=address"]


def test_what_is_missing(
    setup_py: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    missing, message = setup_py["missing"], setup_py["message"]
    here = SimpleNamespace(compiler_type="unix", compiler=[sys.executable, "-O2"])
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    assert missing(None) == "no C compiler was found"
    assert f"{tmp_path} has no Python.h" in missing(here)
    (tmp_path / "Python.h").touch()
    assert missing(here) is None
    absent = SimpleNamespace(compiler_type="unix", compiler=["/nonexistent/cc", "-O2"])
    assert missing(absent) == "the C compiler `/nonexistent/cc` was not found"
    assert missing(SimpleNamespace(compiler_type="msvc")) is None
    text = message(None, ValueError("failed with exit code 1"))
    assert "failed with exit code 1" in text and "apt install" not in text


def test_an_old_python_is_told_before_anything_else() -> None:
    code = "import sys; sys.version_info = (3, 10, 1); exec(open('setup.py').read())"
    done = run(sys.executable, "-c", code, cwd=ROOT)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.startswith("filterjit needs Python 3.11 or newer; this is Python 3.")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """What pip needs of a checkout, where building leaves nothing in the real one."""
    folder = tmp_path / "copy"
    ignore = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
    for name in ("csrc", "python"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    for name in ("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, folder)
    return folder


def test_without_a_compiler_one_message_says_what_is_missing(copy: Path) -> None:
    # This is what `pip install .` runs.
    build = "import setuptools.build_meta as b; b.build_wheel('out')"
    done = run(sys.executable, "-c", build, cwd=copy, CC="/nonexistent/cc")
    assert done.returncode == 1
    first = "filterjit could not be built: the C compiler `/nonexistent/cc` was not found.\n"
    assert done.stderr.count("filterjit could not be built") == 1, done.stderr
    said = done.stderr[done.stderr.index(first) :]
    assert f"apt install gcc python3.{sys.version_info.minor}-dev" in said
    assert "Traceback" not in done.stderr
    assert not list((copy / "out").glob("*.whl"))


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_an_error_of_the_compiler_is_shown(copy: Path) -> None:
    for file in copy.glob("csrc/**/*.c"):
        file.write_text("#error this is no C11\n")
    build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    done = run(*build, cwd=copy, CC="gcc", FILTERJIT_TESTING="")
    assert done.returncode == 1
    assert "this is no C11" in done.stderr and "compiler's own messages are above" in done.stderr
    assert "apt install" not in done.stderr and "Traceback" not in done.stderr


def test_the_workflows_run_what_is_there() -> None:
    yaml = pytest.importorskip("yaml")
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([\w -]+):", makefile.replace("$(VENV)", ".venv"), re.M)
    known = {target for line in targets for target in line.split()}
    for file in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        workflow = yaml.safe_load(file.read_text())
        assert workflow["permissions"] == {"contents": "read"}, file
        for job in workflow["jobs"].values():
            for command in (step["run"] for step in job["steps"] if "run" in step):
                for target in re.findall(r"\bmake ([\w-]+)", command):
                    assert target in known, f"{file.name}: make {target}"
                for script in re.findall(r"(?<![\w./])\.ci/\w+", command):
                    assert (ROOT / script).is_file(), f"{file.name}: {script}"
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]
    assert jobs["tests"]["strategy"]["matrix"]["python"] == [MINORS[0], MINORS[-1]]
