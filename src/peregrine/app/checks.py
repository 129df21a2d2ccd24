"""What is wrong with a user's code, found when it is submitted: each mistake with its operator, place and remedy."""

import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from peregrine.app.nondeterminism import MARK, find
from peregrine.errors import ConfigurationError

T = TypeVar("T", bound=Callable[..., Any])

_DEPTH = 8  # of what is looked into for the part that cannot be pickled


def deterministic(thing: T) -> T:
    """Marks a function or a class as the same in every replay, whatever it seems to do: it is not checked."""
    setattr(thing, MARK, True)
    return thing


def check_deterministic(op_name: str, thing: Any) -> None:
    """Neither clock nor randomness: state is rebuilt by replaying, also at another site."""
    match find(thing):
        case None:
            return
        case found if found.kind == "clock":
            what = f"operator {op_name} reads the clock ({found.name}, {found.place})"
            instead = "use the event time of the record, or timerValues.getCurrentProcessingTimeInMs() in a processor"
        case found:
            what = f"operator {op_name} draws random numbers ({found.name}, {found.place})"
            instead = "derive them from the record, like random.Random(record.id), or let the source add them"
    raise ConfigurationError(
        f"{what}: a replay would give another result", f"{instead}; if it does no harm, mark the code @deterministic"
    )


def check_signature(op_name: str, function: Any, positional: int) -> None:
    """It can be called with that many arguments."""
    if not callable(function):
        raise ConfigurationError(
            f"operator {op_name} is given {function!r}, which cannot be called", f"give {_function_of(positional)}"
        )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some builtins do not tell
        return
    try:
        signature.bind(*[None] * positional)
    except TypeError as wrong:
        raise ConfigurationError(
            f"operator {op_name}: {_name_of(function)} takes {signature}, but is called with {_arguments(positional)}"
            f" ({wrong})",
            f"give {_function_of(positional)}",
        ) from None


def check_pickles(op_name: str, thing: Any, dumps: Callable[[Any], bytes]) -> None:
    """It can be sent to where it runs. `dumps` is cloudpickle's, by which Spark sends it."""
    try:
        dumps(thing)
    except Exception as failure:
        holder, path, culprit = _culprit(thing, dumps)
        if path:
            what = f"{_name_of(holder)} refers to `{path}`, a {_type_of(culprit)}"
        else:
            what = f"{_name_of(thing)} is a {_type_of(thing)}"
        raise ConfigurationError(
            f"operator {op_name} cannot be sent to where it runs: {what} ({type(failure).__name__}: {failure})",
            "make it where it is used: inside of the function, or in the processor's init",
        ) from None


def _culprit(thing: Any, dumps: Callable[[Any], bytes]) -> tuple[Any, str, Any]:
    """(the function or object that holds it, by which name, what cannot be pickled and has no part that cannot)"""
    holder, path, seen = thing, "", {id(thing)}
    for _ in range(_DEPTH):
        found = ((n, p) for n, p in _parts(thing) if id(p) not in seen and not _can_be_pickled(p, dumps))
        name, part = next(found, ("", None))
        if not name:
            break
        seen.add(id(part))
        if isinstance(thing, types.FunctionType):
            holder, path = thing, name
        else:
            path = f"{path}{name}" if path else name.removeprefix(".")
        thing = part
    return holder, path, thing


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, types.FunctionType):
        yield from zip(thing.__code__.co_freevars, _contents(thing.__closure__ or ()), strict=True)
        yield from ((f"default {default!r}", default) for default in thing.__defaults__ or ())
        yield from ((name, thing.__globals__[name]) for name in _names(thing.__code__) if name in thing.__globals__)
    elif isinstance(thing, types.MethodType):
        yield "self", thing.__self__
    elif isinstance(thing, functools.partial):
        yield "func", thing.func
        yield from ((f"argument {number}", part) for number, part in enumerate(thing.args))
        yield from thing.keywords.items()
    elif isinstance(thing, dict):
        yield from ((f"[{key!r}]", value) for key, value in thing.items())
    elif isinstance(thing, list | tuple | set | frozenset):
        yield from ((f"[{number}]", value) for number, value in enumerate(thing))
    elif isinstance(thing, type):
        members = ((name, getattr(value, "__func__", value)) for name, value in vars(thing).items())
        yield from ((f".{name}", value) for name, value in members if not name.startswith("__") or callable(value))
    else:
        yield from ((f".{name}", value) for name, value in getattr(thing, "__dict__", {}).items())
        slots = (name for base in type(thing).__mro__ for name in getattr(base, "__slots__", ()))
        yield from ((f".{name}", getattr(thing, name)) for name in slots if hasattr(thing, name))
        yield f" of {type(thing).__name__}", type(thing)


def _contents(cells: tuple[Any, ...]) -> Iterator[Any]:
    for cell in cells:
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            yield None


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _can_be_pickled(thing: Any, dumps: Callable[[Any], bytes]) -> bool:
    try:
        dumps(thing)
    except Exception:
        return False
    return True


def _name_of(thing: Any) -> str:
    """What it is, and where it is written."""
    code = getattr(inspect.unwrap(thing), "__code__", None) if callable(thing) else None
    name = getattr(thing, "__qualname__", None)
    if code is None:
        return f"the class {name}" if isinstance(thing, type) else f"the {type(thing).__qualname__}"
    kind = "the lambda" if code.co_name == "<lambda>" else f"the function {name or code.co_name}"
    return f"{kind} ({code.co_filename}:{code.co_firstlineno})"


def _type_of(thing: Any) -> str:
    cls = type(thing)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _arguments(count: int) -> str:
    return "1 argument" if count == 1 else f"{count} arguments"


def _function_of(count: int) -> str:
    return f"a function of {_arguments(count)}"
