"""Finds in a user's code what would be different in a replay: clocks and random numbers.

It reads bytecode and runs nothing of it. A name counts by what it stands for (`from time import time as now` is a
clock, `row.time` is not), so globals, closures and imports are resolved, and attributes only of modules, classes and
generators of random numbers. Functions and classes of the same module are read too, a few levels deep. What comes in as
an argument or is computed cannot be resolved: this finds mistakes, it does not prove their absence.
"""

import builtins
import dis
import functools
import importlib
import inspect
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

MARK = "__peregrine_deterministic__"  # on functions and classes that are not read

_LEVELS = 3
_CLOCKS = {
    "time": {
        *("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"),
        *("process_time", "process_time_ns", "thread_time", "thread_time_ns", "clock_gettime", "clock_gettime_ns"),
    },
}
_TODAY = {"now", "utcnow", "today"}  # of `datetime.date` and what is derived from it: datetime, pandas' Timestamp
_RANDOM: Mapping[str, set[str]] = {
    "os": {"urandom", "getrandom"},
    "uuid": {"uuid1", "uuid4", "uuid6", "uuid7"},
    "random": {"SystemRandom"},
}
_ALL_RANDOM = {"random", "secrets", "numpy.random"}  # what is not a seeded generator draws from a hidden one
_HARMLESS = {"compare_digest"}
_SEEDED = {"Random", "default_rng", "RandomState", "SeedSequence", "PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"}
_TYPES = {"Generator", "BitGenerator"}
_NOW_WITHOUT_ARGUMENT = {"localtime", "gmtime", "ctime"}
_WATCHED = {"time", "datetime", "os", "uuid", "random", "secrets", "numpy"}

_UNKNOWN = object()
_SKIPPED = {"CACHE", "PUSH_NULL", "NOP", "RESUME", "EXTENDED_ARG", "COPY_FREE_VARS", "MAKE_CELL", "NOT_TAKEN"}

Kind = Literal["clock", "random"]


@dataclass(frozen=True)
class Finding:
    kind: Kind
    name: str  # as in `time.time`
    place: str  # file:line


class _Source(NamedTuple):
    """Something that would be different in a replay."""

    kind: Kind
    name: str


def find(thing: Any) -> Finding | None:
    """The first of it in a function, a class, or an object with its methods."""
    return next(_Search(_module_of(thing)).look(thing, 0), None)


@dataclass
class _Search:
    module: str
    seen: set[int] = field(default_factory=set)

    def look(self, thing: Any, level: int) -> Iterator[Finding]:
        if level > _LEVELS or id(thing) in self.seen or _marked(thing):
            return
        self.seen.add(id(thing))
        if known := _known(thing):
            yield Finding(*known, "given as it is")
        elif isinstance(thing, functools.partial):
            for part in (thing.func, *thing.args, *thing.keywords.values()):
                yield from self.look(part, level)
        elif isinstance(thing, types.MethodType):
            yield from self.look(thing.__func__, level)
            yield from self.look(thing.__self__, level + 1)
        elif isinstance(thing, types.FunctionType):
            yield from self.read(thing.__code__, thing.__globals__, _scope_of(thing), level)
        elif isinstance(thing, type):
            yield from self.look_at_class(thing, level)
        elif _is_generator(thing):
            yield Finding("random", f"a {type(thing).__name__}", "given as it is")
        elif _module_of(type(thing)) == self.module:
            yield from self.look_at_class(type(thing), level)
            for name, value in vars(thing).items() if hasattr(thing, "__dict__") else ():
                if _is_generator(value):
                    yield Finding("random", f"{type(thing).__name__}.{name}", _place_of(type(thing)))
                elif isinstance(value, types.FunctionType):
                    yield from self.look(value, level + 1)

    def look_at_class(self, cls: type, level: int) -> Iterator[Finding]:
        for base in cls.__mro__:
            if base.__module__ != self.module or _marked(base):
                continue
            for member in vars(base).values():
                if isinstance(member, property):
                    member = member.fget
                member = getattr(member, "__func__", member)  # of static and class methods
                if isinstance(member, types.FunctionType):
                    yield from self.look(member, level)

    def read(
        self, code: types.CodeType, names: Mapping[str, Any], scope: dict[str, Any], level: int
    ) -> Iterator[Finding]:
        """`scope`: what local variables and those of enclosing functions are known to be."""
        refers: list[Any] = []
        importing: Any = _UNKNOWN
        current: Any = _UNKNOWN
        instructions = [each for each in dis.get_instructions(code) if each.opname not in _SKIPPED]
        for nth, each in enumerate(instructions):
            op, name = each.opname, each.argval
            if op in ("LOAD_GLOBAL", "LOAD_NAME"):
                current = scope.get(name, names.get(name, getattr(builtins, name, _UNKNOWN)))
            elif op.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF")):
                current = scope.get(name[-1] if isinstance(name, tuple) else name, _UNKNOWN)
            elif op in ("LOAD_ATTR", "LOAD_METHOD"):
                current = _attribute(current, name)
            elif op == "IMPORT_NAME":
                current = importing = _imported(name, whole=bool(instructions[nth - 1].argval))
            elif op == "IMPORT_FROM":
                current = _attribute(importing, name)
            elif op.startswith(("STORE_FAST", "STORE_DEREF", "STORE_NAME")):
                stored, *loaded = name if isinstance(name, tuple) else (name,)
                scope.pop(stored, None)
                if current is not _UNKNOWN:
                    scope[stored] = current
                current = scope.get(loaded[0], _UNKNOWN) if loaded and "LOAD" in op else _UNKNOWN
                continue
            elif op in ("SWAP", "POP_TOP") and importing is not _UNKNOWN:
                continue  # `import a.b as c`
            else:
                current = _UNKNOWN
                continue
            if found := current if isinstance(current, _Source) else _known(current):
                yield Finding(*found, _line(code, each))
                current = _UNKNOWN
            elif unseeded := _unseeded(current, instructions[nth + 1] if nth + 1 < len(instructions) else None):
                yield Finding(*unseeded, _line(code, each))
            elif isinstance(current, types.FunctionType | type) and current.__module__ == self.module:
                refers.append(current)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                yield from self.read(constant, names, dict(scope), level)
        for thing in refers:
            yield from self.look(thing, level + 1)


def _marked(thing: Any) -> bool:
    return getattr(thing, MARK, False) is True


def _module_of(thing: Any) -> str:
    if isinstance(thing, functools.partial):
        return _module_of(thing.func)
    module = getattr(thing, "__module__", None)
    return module if isinstance(module, str) else type(thing).__module__


def _scope_of(function: types.FunctionType) -> dict[str, Any]:
    """Closure, and defaults of parameters: who writes `now=time.time` means it."""
    code, scope = function.__code__, dict(function.__kwdefaults__ or {})
    defaults = function.__defaults__ or ()
    scope.update(zip(code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount], defaults, strict=True))
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            scope[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return scope


def _imported(name: str, whole: bool) -> Any:
    """The module that `import` gives: the package of a dotted name, or with `from` the module itself."""
    wanted = name if whole else name.partition(".")[0]
    if name.partition(".")[0] in _WATCHED:
        return importlib.import_module(wanted)
    return sys.modules.get(wanted, _UNKNOWN)


def _attribute(of: Any, name: str) -> Any:
    if isinstance(of, type) and name in _TODAY and _is_date(of):
        return _Source("clock", f"{of.__name__}.{name}")
    if _is_generator(of):
        return _Source("random", f"{type(of).__name__}.{name}")
    if isinstance(of, types.ModuleType):
        if of.__name__ in _WATCHED:
            return getattr(of, name, _UNKNOWN)  # numpy loads some of its parts when they are asked for
        return vars(of).get(name, sys.modules.get(f"{of.__name__}.{name}", _UNKNOWN))
    if isinstance(of, type):
        found = inspect.getattr_static(of, name, _UNKNOWN)
        return getattr(found, "__func__", found)
    return _UNKNOWN


def _is_date(cls: type) -> bool:
    return any(base.__module__ == "datetime" for base in cls.__mro__)


def _is_generator(thing: Any) -> bool:
    """One that lives outside of the state: a replay would go on where it happens to be."""
    modules = [base.__module__ for base in type(thing).__mro__]
    return any(module == "random" or module.startswith("numpy.random") for module in modules)


@functools.cache
def _table(numpy_is_there: bool) -> list[tuple[Any, Kind, str]]:
    found: list[tuple[Any, Kind, str]] = []
    for module, names in _CLOCKS.items():
        found += _members(module, "clock", names)
    for module, names in _RANDOM.items():
        found += _members(module, "random", names)
    for module in _ALL_RANDOM:
        if module == "numpy.random" and not numpy_is_there:
            continue
        public = set(importlib.import_module(module).__all__)
        found += _members(module, "random", public - _HARMLESS - _SEEDED - _TYPES)
    return found


def _members(module: str, kind: Kind, names: set[str]) -> list[tuple[Any, Kind, str]]:
    loaded = importlib.import_module(module)
    return [(getattr(loaded, name), kind, f"{module}.{name}") for name in sorted(names) if hasattr(loaded, name)]


def _known(thing: Any) -> _Source | None:
    if not callable(thing):
        return None
    for known, kind, name in _table("numpy" in sys.modules):
        # Methods of the hidden generator are made anew whenever they are asked for.
        if thing is known or (isinstance(thing, types.MethodType | types.BuiltinMethodType) and thing == known):
            return _Source(kind, name)
    own = getattr(thing, "__self__", None)
    if isinstance(own, type) and _is_date(own) and getattr(thing, "__name__", "") in _TODAY:
        return _Source("clock", f"{own.__name__}.{thing.__name__}")
    return None


def _unseeded(thing: Any, following: dis.Instruction | None) -> _Source | None:
    """A generator without a seed, or a time of day without a time."""
    if following is None or following.opname not in ("CALL", "PRECALL") or following.arg != 0 or not callable(thing):
        return None
    module, name = getattr(thing, "__module__", None) or "", getattr(thing, "__name__", "")
    if name in _SEEDED and (module == "random" or module.startswith("numpy.random")):
        return _Source("random", f"{module}.{name}() without a seed")
    if name in _NOW_WITHOUT_ARGUMENT and module == "time":
        return _Source("clock", f"time.{name}() without a time")
    return None


def _line(code: types.CodeType, each: dis.Instruction) -> str:
    line = each.positions.lineno if each.positions is not None else None
    return f"{code.co_filename}:{line or code.co_firstlineno}"


def _place_of(cls: type) -> str:
    for member in vars(cls).values():
        if isinstance(member, types.FunctionType):
            return f"{member.__code__.co_filename}:{member.__code__.co_firstlineno}"
    return cls.__qualname__
