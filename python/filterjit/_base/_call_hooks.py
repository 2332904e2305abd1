"""The methods of a ``hooks`` object, which the C core calls by name.

Each FilterJit and each Cache holds an object ``hooks``. Its methods do in Python what a call needs
besides its path in C. The C core passes all arguments by position, calls every hook with no
exception set, and holds no lock while a hook runs. So a hook may run any Python code, including a
call of the same FilterJit. If a hook raises, the call fails with the same exception, unless the
hook's docstring says otherwise.

`_call._hooks.FunctionHooks` and `_aot._compiled_hooks.CompiledHooks` implement `CallHooks`.
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

    A hit calls none of these hooks, except `before_raising_call`, `wait` and `run_deferred` where
    the program can raise while it runs, and `choose` where an argument is asked in each call. "The
    call" is a call of a FilterJit, and also `_find` and `_find_or_compile`, which bind and flatten
    as a call does.

    An exception of a hook other than `prepare` and `translate_error` goes through
    `translate_error`, as all exceptions of a call do.
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

        Raises: anything; `translate_error` does not see it.
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

    def raise_binding_error(
        self, f: _core.FilterJit, args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> None:
        """Raises the TypeError of arguments that do not fit the signature of `f`.

        When: the C core could not bind the arguments. If the hook returns, the C core raises a
        TypeError with a general message.
        """
        ...

    def translate_error(self, /, *failure: Any) -> BaseException | str:
        """Returns the exception to raise instead of `exception`, often `exception` itself.

        When: a call failed, in any of its steps, with an instance of Exception. It is not called
        for KeyboardInterrupt and other BaseExceptions, nor for exceptions of `prepare`.
        `exception` is not set while the hook runs. The arguments are those of a `Failure`.

        Returns: an exception; or a str, and then the result of the call is that of `hand_over`.
        Anything else is ignored, and `exception` is raised.

        Raises: an Exception is dropped, and `exception` is raised; any other BaseException takes
        the place of `exception`.
        """
        ...

    def hand_over(
        self, f: _core.FilterJit, reason: str, args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> Any:
        """Makes a call without a variant of `f`, and returns its result.

        When: `translate_error` has returned `reason` for an exception of the call. A call of
        ``_find_or_compile`` or ``_find`` raises the exception instead.

        Raises: anything.
        """
        raise AssertionError("translate_error returns no reason")

    def run_deferred(self, variant: _core.Variant, first: int, again: bool, /) -> None:
        """Runs what this thread has deferred on `variant` since its `deferrals` was `first`.

        When: a call is over, has failed or not, and something is deferred. If the hook raises, as
        where it is interrupted, it is called once `again`.

        Raises: an Exception is dropped the first time, and then reported as unraisable; any other
        BaseException is what the call raises.
        """
        ...

    def before_raising_call(self, variant: _core.Variant, /) -> None:
        """Prepares for a program that can raise while it runs.

        When: before each call of a variant that has a trace for which `inspect_new_trace` returned
        True, or has not returned an answer yet. What the hook sets up for the call, it undoes in
        a function that it gives to ``variant.defer``; the C core runs such functions when the call
        is over, also if the hook raised.

        Raises: anything; the program does not run.
        """
        ...

    def call_again(
        self, variant: _core.Variant, exception: Exception, arrays: tuple[Any, ...], /
    ) -> bool:
        """Returns whether to call ``variant.call`` once more.

        When: a call of a variant whose attribute `call` Python has set failed with `exception`, an
        Exception, while JAX's callable ran. `arrays` are the arrays of the call.

        Returns: True if the hook has set another `call`; else `exception` is raised.

        Raises: anything; it is raised in the place of `exception`.
        """
        raise AssertionError("nothing sets the `call` of a variant")

    def inspect_new_trace(
        self, variant: _core.Variant, arrays: tuple[Any, ...], outputs: tuple[Any, ...], /
    ) -> bool | None:
        """Returns whether the program of a new trace can raise while it runs.

        When: after the first call of each trace of `variant` that returns; `arrays` are the
        arrays of the call, `outputs` the arrays that the program returned. The hook is not called
        where JAX ran the function without compiling it (``jax_disable_jit``), nor for variants of
        ``Cache.insert_compiled``, which is told the answer.

        Returns: the answer, which the C core stores for the trace; None if there is no answer yet,
        and then the next call of the trace asks again.

        Raises: anything; the next call of the trace asks again.
        """
        ...

    def wait(self, outputs: tuple[Any, ...], /) -> None:
        """Returns when the device has computed `outputs`.

        When: after each call of a trace that can raise, before the result is built. `outputs` are
        the arrays that the program returned.

        Raises: what the program raised.
        """
        ...
