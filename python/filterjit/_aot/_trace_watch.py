"""What runs while a function is traced: whether a description of its code had all of it.

`watching` notes, in its own thread, each code object that starts and each call from the user's code
and from most packages:

* code of the user's that is not in the description, such as what a name computed at run time led
  to, is a *surprise*;
* so is a call of something that reads the world: files, the environment, clocks, random numbers;
* of code of installed packages, the package is noted.

On Python 3.12 and newer, ``sys.monitoring`` tells of a code object once. Before, ``sys.setprofile``
tells of each call, which takes longer.
"""

import contextlib
import functools
import gc
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

from .._compat import _equinox_compat, _registered_compat
from .._functions._packages import is_library
from .._functions._types import of_type
from .._trees._static_keys import STANDARD_LIBRARY

_MOST_SURPRISES = 4
_NAME = "filterjit"

# Modules of functions that read the world; of ``numpy`` only what is below.
_WORLD = frozenset(
    {"_io", "io", "os", "posix", "nt", "time", "random", "_random", "secrets", "uuid"}
    | {
        "pathlib",
        "glob",
        "tempfile",
        "shutil",
        "subprocess",
        "_posixsubprocess",
        "socket",
        "_socket",
    }
    | {
        "genericpath",
        "platform",
        "getpass",
        "fileinput",
        "linecache",
        "urllib",
        "http",
        "sqlite3",
        "_sqlite3",
    }
    | {"mmap", "gc", "resource", "signal", "locale", "importlib"}
)
_WORLD_IN_NUMPY = (
    "numpy.random",
    "numpy.lib._npyio_impl",
    "numpy.lib.npyio",
    "numpy.lib._datasource",
)
_WORLD_BUILTINS = frozenset({"open", "input"})
# Which differ between processes; a package may use them for memos.
_OF_PROCESS = frozenset({"id", "hash", "globals", "locals", "vars", "__import__"})
_WORLD_METHODS = frozenset({"now", "today", "utcnow"})  # of datetime's classes
_READS_OF_NUMPY = frozenset(
    {"load", "loadtxt", "genfromtxt", "fromfile", "memmap"}
    | {"geterr", "geterrcall", "getbufsize", "get_printoptions"}
)
# Of modules of which most functions read nothing.
_READS: dict[str, frozenset[str]] = {
    "inspect": frozenset(
        {"getsource", "getsourcelines", "getsourcefile", "findsource", "getfile"}
        | {"getcomments", "stack", "trace", "getouterframes", "getinnerframes", "getframeinfo"}
    ),
    "logging": frozenset({"isEnabledFor", "getEffectiveLevel", "hasHandlers", "getLevelName"}),
}
# What packages may call of ``sys``, and all may.
_HARMLESS_OF_SYS = frozenset({"intern", "exc_info", "exception", "audit"})
# Methods of a module above whose start is seen too: ``os.environ[...]`` is no call.
_WORLD_CODE = frozenset({"os"})
# Of these, nothing reads the world for a trace. (``wadler_lindig`` prints Equinox's Modules: JAX asks
# for the text of each that it maps, which takes hundreds of thousands of calls for a deep model.)
_TRUSTED = frozenset(
    {
        "jax",
        "jaxlib",
        "filterjit",
        "numpy",
        "equinox",
        "optax",
        "flax",
        "ml_dtypes",
        "wadler_lindig",
    }
)
# Their settings are in the key, or there are none.
_WITHOUT_SETTINGS = frozenset({"jax", "jaxlib", "filterjit", "numpy", "equinox", "ml_dtypes"})
# What calls code of the user's that is no part of the trace: listeners, handlers of logs (and of the
# garbage collector).
_ASIDE = ("jax._src.monitoring", "logging", "warnings", "filterjit._observe", "filterjit._terminal")


class Watch:
    """What was seen in one thread.

    Attributes:
        codes: the addresses of the code objects that may run.
        surprises: sentences that name what makes the result uncertain, each once.
        packages: the top-level modules of installed packages whose code has run.
        modules: the modules of packages that may have settings of their own.
        started: the addresses of the code objects of the user's that have run.
    """

    def __init__(self, codes: set[int]) -> None:
        self.codes = codes
        self.surprises: dict[str, None] = {}
        self.packages: set[str] = set()
        self.modules: set[str] = set()
        self.started: set[int] = set()
        self.thread = threading.get_ident()

    def surprise(self, text: str) -> None:
        if len(self.surprises) < _MOST_SURPRISES:
            self.surprises[text] = None

    def start(self, frame: types.FrameType) -> bool:
        """Is called when a frame starts. Returns whether to see the calls of its code."""
        code, module = frame.f_code, frame.f_globals.get("__name__")
        if is_library(module):
            top = str(module).partition(".")[0]
            if top not in STANDARD_LIBRARY:
                if top in _WITHOUT_SETTINGS:
                    self.packages.add(top)
                elif module not in self.modules and not _is_aside(frame):
                    self.packages.add(top)
                    self.modules.add(str(module))
                return top not in _TRUSTED
            if module in _WORLD_CODE and (caller := _user_above(frame)) is not None:
                self.surprise(f"{_place(caller)} reads the world: `{module}.{code.co_qualname}`")
            return False
        self.started.add(id(code))
        if id(code) not in self.codes and not (self._is_generated(frame) or _is_aside(frame)):
            self.surprise(
                f"`{code.co_qualname}` ({code.co_filename}:{code.co_firstlineno}) ran, "
                "which is reached in a way that cannot be described"
            )
        return True

    def _is_generated(self, frame: types.FrameType) -> bool:
        """Whether the code was made from the names of fields: of a namedtuple, or of a Module that
        is in the description, or whose package is known."""
        code, variables = frame.f_code, frame.f_globals
        module = variables.get("__name__")
        if type(module) is str and module.startswith("namedtuple_"):
            return True
        cls = _equinox_compat.generated_for(code, variables)
        return cls is not None and (
            of_type(cls).is_library
            or any(id(other) in self.codes for other in _registered_compat.registered_code(cls))
        )

    def reads(self, frame: types.FrameType, name: str) -> None:
        """Is called when code calls what reads the world."""
        if is_library(frame.f_globals.get("__name__")) and (
            name in _OF_PROCESS
            or name.startswith("sys.")
            or _is_below(frame, "importlib._bootstrap")
        ):
            return
        if not _is_aside(frame):
            self.surprise(f"{_place(frame)} calls `{name}`")


def _place(frame: types.FrameType) -> str:
    code = frame.f_code
    return f"`{code.co_qualname}` ({code.co_filename}:{frame.f_lineno})"


def _user_above(frame: types.FrameType) -> types.FrameType | None:
    """Returns the frame of the user's code for which code of the standard library runs, or None."""
    above = frame.f_back
    while above is not None:
        module = above.f_globals.get("__name__")
        if not is_library(module):
            return None if _is_aside(above) else above
        if str(module).partition(".")[0] not in STANDARD_LIBRARY:
            return None
        above = above.f_back
    return None


def _is_aside(frame: types.FrameType) -> bool:
    return _is_below(frame, _ASIDE)


def _is_below(frame: types.FrameType, modules: str | tuple[str, ...]) -> bool:
    """Whether a frame runs for one of these modules, or for a callback of the garbage collector."""
    collecting = {getattr(callback, "__code__", None) for callback in gc.callbacks}
    above: types.FrameType | None = frame
    while above is not None:
        module = above.f_globals.get("__name__")
        if type(module) is str and module.startswith(modules):
            return True
        if above.f_code in collecting:
            return True
        above = above.f_back
    return False


def _reads_world(function: Any) -> str | None:
    """Returns the name of a function that reads the world; None of others."""
    cls = type(function)
    name = getattr(function, "__name__", None) if cls in _FUNCTIONS else None
    if cls is types.MethodType:
        function = function.__func__
        name = getattr(function, "__name__", None)
    module = getattr(function, "__module__", None) if name is not None else None
    owner = getattr(function, "__self__", None) if cls in _BUILT_IN else None
    if owner is not None and not isinstance(owner, types.ModuleType):
        of = owner if isinstance(owner, type) else type(owner)
        module = of.__module__
        if module == "datetime" and name in _WORLD_METHODS:
            return f"{of.__qualname__}.{name}"
    if issubclass(cls, type):
        module, name = function.__module__, function.__qualname__
    if type(module) is not str or type(name) is not str:
        return None
    return _name_in_world(module, name, owner is not None)


@functools.lru_cache(maxsize=4096)  # the calls of a loop are of a few functions
def _name_in_world(module: str, name: str, is_built_in: bool) -> str | None:
    if module == "builtins":
        return name if is_built_in and name in _WORLD_BUILTINS | _OF_PROCESS else None
    top = module.partition(".")[0]
    if top in _WORLD or module.startswith(_WORLD_IN_NUMPY):
        return f"{module}.{name}"
    if module == "sys" and name not in _HARMLESS_OF_SYS:
        return f"sys.{name}"
    if name in _READS.get(module, ()):
        return f"{module}.{name}"
    if top in ("numpy", "jax") and name in _READS_OF_NUMPY:
        return f"{module}.{name}"
    return None


_BUILT_IN = (types.BuiltinFunctionType, types.MethodWrapperType)
_FUNCTIONS = (types.FunctionType, *_BUILT_IN, types.MethodType, types.MethodDescriptorType)


class _Refused(Exception):
    """Says why nothing can be watched now."""


# ---- Python 3.12 and newer ----


class _Monitor:
    """The events of ``sys.monitoring``, which are those of all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: list[Watch] = []
        self._tool: int | None = None
        self._local: list[types.CodeType] = []

    def add(self, watch: Watch) -> None:
        m = sys.monitoring
        with self._lock:
            if self._tool is None:
                self._tool = next((i for i in (4, 3) if m.get_tool(i) is None), None)
                if self._tool is None:
                    raise _Refused("other tools have taken all places of `sys.monitoring`")
                m.use_tool_id(self._tool, _NAME)
                m.register_callback(self._tool, m.events.PY_START, self._on_start)
                m.register_callback(self._tool, m.events.CALL, self._on_call)
                m.set_events(self._tool, m.events.PY_START)
            self._watches = [*self._watches, watch]
            m.restart_events()  # what another watch has seen

    def remove(self, watch: Watch) -> None:
        m = sys.monitoring
        with self._lock:
            self._watches = [other for other in self._watches if other is not watch]
            if self._watches or self._tool is None:
                return
            for code in self._local:
                m.set_local_events(self._tool, code, 0)
            self._local = []
            m.set_events(self._tool, 0)
            m.free_tool_id(self._tool)
            self._tool = None

    def _on_start(self, code: types.CodeType, _: int) -> Any:
        watches, thread = self._watches, threading.get_ident()
        mine = [watch for watch in watches if watch.thread == thread]
        if mine:
            frame = sys._getframe(1)
            if frame.f_code is code:
                wanted = False
                for watch in mine:
                    wanted = watch.start(frame) or wanted
                if wanted:
                    self._see_calls(code)
                if frame.f_globals.get("__name__") in _WORLD_CODE:
                    return None
        # Another thread's watch has not seen the code yet.
        return sys.monitoring.DISABLE if len(mine) == len(watches) else None

    def _see_calls(self, code: types.CodeType) -> None:
        with self._lock:
            if self._tool is not None:
                self._local.append(code)
                m = sys.monitoring
                m.set_local_events(self._tool, code, m.events.CALL)

    def _on_call(self, code: types.CodeType, _: int, function: Any, __: Any) -> Any:
        name = _reads_world(function)
        if name is None:
            return
        thread = threading.get_ident()
        for watch in self._watches:
            if watch.thread == thread:
                frame: types.FrameType | None = sys._getframe(1)
                if frame is not None and frame.f_code is code:
                    watch.reads(frame, name)


# ---- before ----


class _Profile:
    """``sys.setprofile``, which is that of the thread."""

    def add(self, watch: Watch) -> None:
        before = sys.getprofile()
        if before is not None and not isinstance(before, _Profiler):
            raise _Refused("a profiler is running")
        sys.setprofile(_Profiler(watch, before))

    def remove(self, watch: Watch) -> None:
        now = sys.getprofile()
        if isinstance(now, _Profiler) and now.watch is watch:
            sys.setprofile(now.before)


class _Profiler:
    def __init__(self, watch: Watch, before: "_Profiler | None") -> None:
        self.watch = watch
        self.before = before
        self._seen: dict[int, tuple[types.CodeType, bool]] = {}

    def __call__(self, frame: types.FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        seen = self._seen.get(id(code))
        if event == "call":
            if seen is None or frame.f_globals.get("__name__") in _WORLD_CODE:
                self._seen[id(code)] = code, self.watch.start(frame)
            caller = frame.f_back
            above = None if caller is None else self._seen.get(id(caller.f_code))
            if above is not None and above[1] and caller is not None:
                module = frame.f_globals.get("__name__")
                if type(module) is str and module.partition(".")[0] in _WORLD:
                    self.watch.reads(caller, f"{module}.{code.co_qualname}")
        elif event == "c_call" and seen is not None and seen[1]:
            name = _reads_world(argument)
            if name is not None:
                self.watch.reads(frame, name)
        if self.before is not None:
            self.before(frame, event, argument)


_watcher: Any = _Monitor() if hasattr(sys, "monitoring") else _Profile()


@contextlib.contextmanager
def watching(codes: Any) -> Iterator[Watch]:
    """A context that watches this thread. `codes` are the code objects that may run.

    Where nothing can be watched, that is a surprise.
    """
    watch = Watch({id(code) for code in codes})
    try:
        _watcher.add(watch)
    except _Refused as e:
        watch.surprise(f"the trace could not be watched: {e}")
        yield watch
        return
    try:
        yield watch
    finally:
        _watcher.remove(watch)
