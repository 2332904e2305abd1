"""The methods of a ``hooks`` object, which the C core calls by name.

Each FilterJit and each Cache holds an object ``hooks``. Its methods do in Python what a call needs
besides its path in C. The C core passes all arguments by position, calls every hook with no
exception set, and holds no lock while a hook runs. So a hook may run any Python code, including a
call of the same FilterJit. If a hook raises, the call fails with the same exception, unless the
hook's docstring says otherwise.

`_call._miss.FunctionHooks` and `_aot._compiled_calls.CompiledHooks` implement `CallHooks`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from .. import _core


class Failure(NamedTuple):
    """A call that has failed.

    Attributes:
        f: the FilterJit that was called.
        exception: the exception that the call has raised.
        variant: the variant; None if the call failed before it had one.
        arrays: the collected arrays. If there is a variant, these are all arrays of the call.
    """

    f: _core.FilterJit
    exception: BaseException
    variant: _core.Variant | None
    arrays: tuple[Any, ...]


class CallHooks(Protocol):
    """What the C core asks for on the path of a call (csrc/call/call.c).

    A hit calls none of these hooks, except `run` if the program can raise while it runs, and
    `choose` if an argument is asked in each call. "The call" is a call of a FilterJit, and also
    `_find` and `_find_or_compile`, which bind and flatten as a call does.

    An exception of a hook other than `prepare` and `failed` goes through `failed`, as all
    exceptions of a call do.
    """

    settings: Any
    """How the function is jitted, a `_call._settings.Settings`. The C core does not read it."""

    registry: _core.Registry
    """The registry that classifies the arguments. Python code reads it; the C core does not."""

    def prepare(self, f: _core.FilterJit, /) -> tuple[_core.Cache, tuple[Any, ...]]:
        """Returns the cache of `f`, and the arrays in the function that `f` wraps.

        When: before the cache is needed for the first time: by a call, ``_parts()``, ``hash(f)``
        or ``==``. It is called again if it raised, and by each of several threads that arrive
        before the first one is done; `f` holds the first answer. It is not called for a FilterJit
        that ``FilterJit._rebuild`` made, which has its cache already.

        Returns: as many arrays as ``cache.function`` has. Anything else is a TypeError or a
        ValueError of the C core.

        Raises: anything; `failed` does not see it.
        """
        ...

    def choose(self, f: _core.FilterJit, name: str, argument: Any, /) -> bytes:
        """Returns a byte for each leaf of an argument: 1 if it is traced where it is a number.

        When: the argument of a parameter with FJ_CHOSEN_ARGUMENT (csrc/walk/flatten.h) is
        flattened; with FJ_ASKED_ARGUMENT, that is in each call. Otherwise, the answer may depend on
        nothing but the structure of the argument.

        Raises: anything.
        """
        ...

    def compile(self, f: _core.FilterJit, variant: _core.Variant, /) -> Callable[..., _core.Output]:
        """Returns the callable of a new variant; it takes arrays by position.

        When: the arguments have a Structure for which the cache of `f` has no variant. `variant`
        is not in the cache yet, and ``variant.call`` is not set. Several threads that miss at
        once may each call this hook with a variant of the same Structure; the variant that enters
        the cache first is used by all, and the others are dropped.

        Returns: a callable, which must return an Output; the C core checks it at each call.

        Raises: anything.
        """
        ...

    def run(
        self,
        f: _core.FilterJit,
        variant: _core.Variant,
        arrays: tuple[Any, ...],
        failed: Exception | None,
        /,
    ) -> _core.Output | None:
        """Makes a call of a variant by ``variant.call``, with what has to last as long as it.

        When: the variant has no trace yet, or one of which ``Variant.may_raise`` says True; or the `call` of the variant was set, and it has raised `failed`. `arrays` are the arrays of
        the call.

        Returns: what ``variant.call`` returned; None if there is no other program for the call, and
        then `failed` is raised.

        Raises: anything.
        """
        ...

    def finish(
        self, variant: _core.Variant, arrays: tuple[Any, ...], output: _core.Output | None, /
    ) -> None:
        """Ends what a trace has begun; before, inspects and waits for a new program.

        When: a call that `run` has not made was one of a trace that is not inspected, and has
        returned `output`; or
        it has failed, and then `output` is None. If it raises, it is called once more with None.

        Raises: what the program raised, or anything else. After a failed call, an Exception is
        dropped.
        """
        ...

    def failed(
        self,
        f: _core.FilterJit,
        exception: Exception | None,
        variant: _core.Variant | None,
        arrays: tuple[Any, ...],
        given: tuple[tuple[Any, ...], dict[str, Any]] | None,
        /,
    ) -> BaseException | Callable[..., Any]:
        """Returns the exception to raise instead of `exception`, often `exception` itself.

        When: a call failed, in any of its steps, with an instance of Exception. It is not called
        for KeyboardInterrupt and other BaseExceptions, nor for exceptions of `prepare`.
        `exception` is not set while the hook runs. `variant` and `arrays` are as in a `Failure`.
        `given` is (args, kwargs) if these do not fit the signature, and then there is no exception.

        Returns: an exception; or a callable, which the C core calls with the arguments of the call,
        to return its result. A call of ``_find_or_compile`` or ``_find`` raises `exception`
        instead. Anything else is ignored, and `exception` is raised.

        Raises: an Exception is dropped, and `exception` is raised; any other BaseException takes
        the place of `exception`.
        """
        ...
