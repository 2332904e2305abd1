"""A plugin of pytest: ``jax.jit`` as `filter_jit` in the tests of JAX; see ``jax_tests``.

A test that calls ``jax.jit(f, ...)`` gets an object whose calls go through a `filter_jit` of `f`:
`in_shardings` by the names of parameters, static arguments as they are, numbers as arrays, as
``jax.jit`` takes them. What `filter_jit` cannot express, or does in its own way (`lower`, `trace`),
goes to JAX's ``jax.jit``; the summary counts both.
"""

import atexit
import collections
import functools
import inspect
import sys
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import jax
import jax._src.pjit
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec, Sharding

import filterjit

REAL = jax.jit
REAL_PJIT = jax._src.pjit.pjit
OPTIONS = {"in_shardings", "out_shardings", "static_argnums", "static_argnames"}
OPTIONS |= {"donate_argnums", "donate_argnames", "keep_unused", "inline", "compiler_options"}
COUNTS: collections.Counter[str] = collections.Counter()


class HandOver(Exception):
    """Says why filter_jit cannot do it."""


def _as_tuple(x: Any) -> tuple[Any, ...]:
    return () if x is None else (x,) if isinstance(x, (int, str)) else tuple(x)


def _is_value(x: Any) -> bool:
    return x is None or isinstance(x, (PartitionSpec, Sharding))


def _check_shardings(value: Any) -> None:
    for leaf in jax.tree.leaves(value, is_leaf=_is_value):
        if not _is_value(leaf):
            raise HandOver(f"a {type(leaf).__name__} in shardings")


def _replicated_for_none(value: Any) -> Any:
    return jax.tree.map(lambda x: PartitionSpec() if x is None else x, value, is_leaf=_is_value)


def _is_number(x: Any) -> bool:
    return isinstance(x, (bool, int, float, complex, np.generic))


def _array(x: Any, what: str = "an argument") -> Any:
    """Returns what jax.jit makes of a leaf of an argument or of a result."""
    if isinstance(x, jax.Array) or (isinstance(x, np.ndarray) and x.dtype != object):
        return x
    if _is_number(x):
        return jnp.asarray(x)
    raise HandOver(f"{what} that is not an array: {type(x).__name__}")


def _result(x: Any) -> Any:
    return _array(x, "a result")


def _is_leaf(x: Any) -> bool:
    return x is not None and type(x).__name__ == "Ref"


class Jitted:
    """In the place of what ``jax.jit`` returns."""

    def __init__(self, real: Any, fun: Any, options: dict[str, Any]) -> None:
        self._is_pjit = real is REAL_PJIT
        self._jax = real(fun, **options)  # raises where the options are wrong
        functools.update_wrapper(self, fun, updated=())
        self._reason = ""
        self._given: Any = ()
        self._keeps_first = False
        try:
            self._make(fun, options)
        except HandOver as e:
            self._reason = str(e)

    def _make(self, fun: Any, options: dict[str, Any]) -> None:
        for name in options.keys() - OPTIONS:
            raise HandOver(f"the option {name}")
        try:
            parameters = list(inspect.signature(fun).parameters.values())
        except (TypeError, ValueError):
            raise HandOver("a function without a signature") from None
        by_position = [
            p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        names = [p.name for p in by_position]
        count = len(names)

        def resolve(numbers: Any, given: Any) -> tuple[set[int], set[str]]:
            found = {n % count if n < 0 and count else n for n in _as_tuple(numbers)}
            by_name = set(_as_tuple(given))
            if numbers is not None and given is not None:
                return found, by_name
            found |= {names.index(n) for n in by_name if n in names}
            by_name |= {
                names[n] for n in found
                if n < count and by_position[n].kind == by_position[n].POSITIONAL_OR_KEYWORD
            }  # fmt: skip
            return found, by_name

        self._static = resolve(options.get("static_argnums"), options.get("static_argnames"))
        self._donated = resolve(options.get("donate_argnums"), options.get("donate_argnames"))
        self._given = options.keys() & {"in_shardings", "out_shardings"}
        inputs, outputs = options.get("in_shardings"), options.get("out_shardings")
        inputs = tuple(inputs) if isinstance(inputs, list) else inputs
        _check_shardings(inputs)
        _check_shardings(outputs)
        kwargs = {
            k: options[k] for k in ("keep_unused", "inline", "compiler_options") if k in options
        }
        self._has_inputs = inputs is not None
        donates = any(self._donated)
        if isinstance(inputs, tuple):
            varargs = any(p.kind == p.VAR_POSITIONAL for p in parameters)
            dynamic = [i for i in range(count) if i not in self._static[0]]
            rest = inputs[len(dynamic) :]
            if rest and not varargs:
                raise HandOver("too many in_shardings")
            if not varargs and len(inputs) < len(dynamic):
                required = [i for i in dynamic if by_position[i].default is inspect.Parameter.empty]
                if len(inputs) < len(required):
                    raise HandOver("too few in_shardings")
            by_number = dict(zip(dynamic, inputs, strict=False))
            if varargs or donates or any(i >= count for i in self._static[0]):
                if varargs and self._static[0]:
                    raise HandOver("in_shardings, *args and static arguments")
                inputs = tuple(by_number.get(i) for i in range(count)) + rest
            else:
                inputs = {names[i]: value for i, value in by_number.items()}
        elif inputs is not None and not _is_value(inputs):
            raise HandOver("in_shardings that are neither a tuple nor a sharding")
        if donates:
            # Only "all arrays" and "all but those in the first argument" can be said: the others
            # become the first argument.
            self._keeps_first = True
            kwargs["donate"] = "warn-except-first"
            if isinstance(inputs, tuple) and any(i >= count for i in self._donated[0]):
                raise HandOver("donated *args with in_shardings")
        self._fun = fun
        kwargs["out_shardings"] = outputs
        self._inputs, self._kwargs = inputs, kwargs
        self._by_key: dict[Any, Any] = {}

    @staticmethod
    def _plain(fun: Any) -> Any:
        of_function = getattr(fun, "__dict__", {})
        known = of_function.get("_plain_for_filterjit")
        if known is not None and known.__wrapped__ is fun:
            return known

        @functools.wraps(fun)
        def function(*args: Any, **kwargs: Any) -> Any:
            return jax.tree.map(_result, fun(*args, **kwargs), is_leaf=_is_leaf)

        if type(fun) is FunctionType:  # jits of one function share what it is wrapped in
            of_function["_plain_for_filterjit"] = function
        return function

    def _jit(self, made: Any, **options: Any) -> Any:
        options, mesh = {**self._kwargs, **options}, self._mesh()
        if mesh is not None:  # for pjit, None is P() there
            for name in self._given:
                options[name] = _replicated_for_none(options[name])
        options = {k: v for k, v in options.items() if v is not None}
        return filterjit.filter_jit(made, mesh=mesh, **options)

    def _mesh(self) -> Any:
        """Returns the mesh of ``with mesh:``, which pjit takes its specs on and jax.jit does not."""
        mesh = jax._src.mesh.thread_resources.env.physical_mesh
        return mesh if self._is_pjit and not mesh.empty else None

    def _call(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        key = self._mesh()
        if key not in self._by_key:
            self._by_key[key] = self._jit(self._plain(self._fun), in_shardings=self._inputs)
        return self._by_key[key](*args, **kwargs)

    def _arguments(self, args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
        def convert(x: Any) -> Any:
            return jax.tree.map(_array, x, is_leaf=_is_leaf)

        def static(x: Any) -> Any:
            if any(isinstance(y, (jax.Array, np.ndarray)) for y in jax.tree.leaves(x)):
                raise HandOver("a static argument with arrays")
            hash(x)
            return x

        numbers, names = self._static
        if self._has_inputs and kwargs:
            raise HandOver("keywords with in_shardings: jax.jit refuses them")
        return (
            [static(x) if i in numbers else convert(x) for i, x in enumerate(args)],
            {k: static(x) if k in names else convert(x) for k, x in kwargs.items()},
        )

    def _call_donating(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        numbers, names = self._donated
        key = len(args), tuple(sorted(kwargs)), self._mesh()
        given = [(i, i in numbers) for i in range(len(args))]
        given += [(k, k in names) for k in sorted(kwargs)]
        kept = {str(k): (args if isinstance(k, int) else kwargs)[k] for k, d in given if not d}
        donated = {str(k): (args if isinstance(k, int) else kwargs)[k] for k, d in given if d}
        ours = self._by_key.get(key)
        if ours is None:
            fun, keywords, count = self._fun, tuple(kwargs), len(args)

            @functools.wraps(fun)
            def split(kept: Any, donated: Any) -> Any:
                found = {**kept, **donated}
                result = fun(
                    *[found[str(i)] for i in range(count)], **{k: found[k] for k in keywords}
                )
                return jax.tree.map(_result, result, is_leaf=_is_leaf)

            del split.__wrapped__
            inputs = self._inputs
            if isinstance(inputs, tuple):
                value = {str(i): inputs[i] if i < len(inputs) else None for i in range(len(args))}
                inputs = {
                    "kept": {k: value[k] for k in kept}, "donated": {k: value[k] for k in donated}
                }  # fmt: skip
            ours = self._by_key[key] = self._jit(split, in_shardings=inputs)
        return ours(kept, donated)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        reason = self._reason
        if self._is_pjit and not self._given and self._mesh() is not None:
            reason = reason or "pjit without shardings in `with mesh:`, which takes its devices"
        if not reason:
            try:
                arguments, keywords = self._arguments(args, kwargs)
                if self._keeps_first:
                    result = self._call_donating(arguments, keywords)
                else:
                    result = self._call(arguments, keywords)
                COUNTS["calls through filter_jit"] += 1
                return result
            except HandOver as e:
                reason = str(e)
            except TypeError as e:
                if "unhashable" not in str(e):
                    raise
                reason = "a static argument without a hash"
        COUNTS[f"calls handed over: {reason}"] += 1
        return self._jax(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_jax" not in self.__dict__:
            raise AttributeError(name)
        COUNTS[f"calls of the method {name}"] += 1
        return getattr(self._jax, name)


def in_tests(real: Any) -> Any:
    """Returns `real` with a Jitted in its place for callers in the tests."""

    @functools.wraps(real)
    def jit(fun: Any = None, *args: Any, **options: Any) -> Any:
        caller = str(sys._getframe(1).f_globals.get("__name__"))
        if args or not (caller.endswith("_test") or caller == "__main__"):
            return real(*(() if fun is None else (fun,)), *args, **options)
        return (lambda f: Jitted(real, f, options)) if fun is None else Jitted(real, fun, options)

    return jit


jax.jit = in_tests(REAL)
jax._src.pjit.pjit = in_tests(REAL_PJIT)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for text, count in COUNTS.most_common():
        terminalreporter.write_line(f"{text}: {count}")


if __name__ == "__main__":  # runs the file of tests that is the first argument
    file = sys.argv[1]
    if any("worker_id" in argument for argument in sys.argv):
        del sys.argv[1]  # the first process starts the others with its own arguments
        atexit.register(pytest_terminal_summary, SimpleNamespace(write_line=print))
    module = sys.modules["__main__"] = ModuleType("__main__")
    module.__file__ = file
    with open(file, encoding="utf-8") as opened:
        exec(compile(opened.read(), file, "exec"), module.__dict__)
