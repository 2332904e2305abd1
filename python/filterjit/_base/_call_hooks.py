"""The protocol of ``hooks``: the Python methods that a call in C needs.

Each FilterJit and each Cache holds a ``hooks`` object. The C core passes all arguments by position
and holds no lock or exception while a hook runs. Hooks can therefore run any Python code, including
a call of the same FilterJit. If a hook raises, the call fails with that exception, unless the
hook's docstring says otherwise.

`_call._miss.FunctionHooks` and `_aot._compiled_calls.CompiledHooks` implement `CallHooks`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from .. import _core


class Failure(NamedTuple):
    """A failed call. `variant` is None if it failed before finding one. `arrays` are the arrays
    collected so far, and complete if `variant` is set. `misfits` is True if the arguments don't fit
    the signature."""

    f: _core.FilterJit
    exception: BaseException
    variant: _core.Variant | None
    arrays: tuple[Any, ...]
    misfits: bool = False


class CallHooks(Protocol):
    """The hooks of a call (csrc/call/call.c), of ``_find`` and of ``_find_or_compile``.

    A hit calls only `run`, if the program can raise. `failed` sees the exceptions of all hooks
    except `prepare` and `failed`.
    """

    settings: Any
    """The function's `_call._settings.Settings`. The C core doesn't read it."""

    registry: _core.Registry
    """Classifies the arguments. Only Python reads it here."""

    def prepare(self, f: _core.FilterJit, /) -> tuple[_core.Cache, tuple[Any, ...]]:
        """Returns the cache of `f`, and the arrays in the function that `f` wraps, as many as
        ``cache.function`` has.

        When: at the first call, ``_parts()``, ``hash(f)`` or ``==``. If it raises, the next of
        these calls it again. Threads that arrive at the same time all call it, and `f` keeps the
        first answer. A FilterJit from ``FilterJit._rebuild`` already has its cache.
        """
        ...

    def choose(self, f: _core.FilterJit, name: str, argument: Any, /) -> bytes:
        """Returns a byte for each leaf of an argument: 1 to trace the leaf if it's a number.

        When: the call flattens an argument marked FJ_CHOSEN_ARGUMENT (csrc/walk/flatten.h). The
        answer must depend only on the argument's structure.
        """
        ...

    def compile(self, f: _core.FilterJit, variant: _core.Variant, /) -> Callable[..., _core.Output]:
        """Returns the callable of a new variant, from arrays to an Output (C checks each result).

        When: the cache of `f` has no variant with the Structure of the arguments. `variant` isn't
        in the cache yet, and ``variant._call`` isn't set. If threads miss together, each calls this
        hook; the first variant to enter the cache wins, and the other ones are dropped.
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
        """Calls ``variant._call`` within the context that a trace or a raising program needs, and
        returns its result; None to raise `failed`, if no other program fits.

        When: ``Variant._may_raise`` is true for a trace, or known for none (such as before the first
        trace, or after `lower`); or the variant's `call` was set and raised `failed`.
        """
        ...

    def finish(
        self, variant: _core.Variant, arrays: tuple[Any, ...], output: _core.Output | None, /
    ) -> None:
        """Ends a trace; first inspects its new program and waits for it.

        When: a call outside `run` returned `output` and its trace isn't inspected yet; or that
        call failed, and `output` is None. If the hook raises, C calls it once more with None. C
        drops an Exception of a call with None.
        """
        ...

    def failed(
        self,
        f: _core.FilterJit,
        exception: Exception | None,
        variant: _core.Variant | None,
        arrays: tuple[Any, ...],
        given: tuple[tuple[Any, ...], dict[str, Any]] | None,
        is_call: bool,
        /,
    ) -> BaseException | Callable[..., Any]:
        """Returns the exception to raise in place of `exception`, often `exception` itself.

        When: any step of a call raised an Exception (other BaseExceptions pass through, and so do
        the exceptions of `prepare`). `variant` and `arrays` are as in a `Failure`. If the arguments
        don't fit the signature, `given` is (args, kwargs) and `exception` is None. `is_call` is
        False in ``_find`` and ``_find_or_compile``.

        Returns: an exception or, if `is_call`, a callable: the C core calls it with the arguments
        of the call and returns its result. C ignores anything else and raises `exception`.

        Raises: C drops an Exception, and lets any other BaseException replace `exception`.
        """
        ...
