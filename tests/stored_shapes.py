"""The shape of everything that is stored or sent, as text: names of fields, their types, what stands for what.

A class stands under its stored name, so that it may be renamed without another text. Of a class that is no dataclass it
is what its methods set on `self`, which is what a snapshot holds of it.
"""

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterator
from enum import Enum
from typing import Any, get_args, get_origin

import msgspec
import numpy as np

from peregrine.core import device_record, rows, shard, state, stored_names, watermarks, wire
from peregrine.core.format_version import FORMAT
from peregrine.core.pages import PageRef
from peregrine.errors import ProtocolError
from peregrine.net import chunk_collector, local_socket, protocol
from peregrine.plan import guide, nearest

# What has no stored name: it is known by where it stands.
OTHERS: dict[str, list[Any]] = {
    "in rows": [wire.RowsHeader],
    "a call": [protocol.Ticket, protocol.Status, protocol.NewsBatch, protocol.Neighbour, protocol.Detour],
    "a line of this machine": [local_socket.Hello],
    "a guide": [guide.Sighting, guide.Use, guide.Notice, nearest.Whereabouts],
    "the journal of a device": [device_record.Moved, device_record.Read, device_record.Beat, device_record.Acked],
    "the state of a host": [shard.Shard, state._Group, state.KeyState, state.Books, watermarks.Stretch, PageRef],
    "beside chunks": [chunk_collector.References],
}


def text() -> str:
    return "\n".join([f"format {FORMAT}", *_lines()]) + "\n"


def _lines() -> Iterator[str]:
    for name in sorted(stored_names.STORED):
        thing = stored_names.named(name)
        if isinstance(thing, type) and thing.__module__.startswith("peregrine."):
            yield f"{name}: {shape_of(thing)}"
    for kind, of in sorted(wire._KINDS.items()):
        yield f"message {kind.decode()}: {stored_names.name_of(of)}"
    yield f"rows: {', '.join(f'{field.name} {field.type}' for field in rows.ROW_SCHEMA)}"
    for where, kinds in OTHERS.items():
        for number, kind in enumerate(kinds):
            yield f"{where} {number}: {shape_of(kind)}"


def shape_of(kind: type[Any]) -> str:
    if issubclass(kind, Enum):
        return " | ".join(f"{each.value!r}" for each in kind)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return ", ".join(f"{name} {_type(kind.__annotations__[name])}" for name in kind._fields)
    if issubclass(kind, msgspec.Struct):
        how = "list" if kind.__struct_config__.array_like else "map"
        tag = kind.__struct_config__.tag
        fields = ", ".join(f"{each.encode_name} {_type(each.type)}" for each in msgspec.structs.fields(kind))
        return f"{how}{'' if tag is None else f' tagged {tag}'}: {fields}"
    if dataclasses.is_dataclass(kind):
        return ", ".join(f"{each.name} {_type(each.type)}" for each in dataclasses.fields(kind))
    return ", ".join(sorted({name for of in kind.__mro__ for name in _set_on_self(of)}))


def _set_on_self(kind: type[Any]) -> set[str]:
    if not kind.__module__.startswith("peregrine."):
        return set()
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def _type(of: Any) -> str:
    if isinstance(of, str):
        return f"'{of}'"
    supertype = getattr(of, "__supertype__", None)  # a NewType is what it is made of
    if supertype is not None:
        return _type(supertype)
    if get_origin(of) is np.ndarray:  # how NumPy writes it changes with its versions
        return f"array of {get_args(get_args(of)[1])[0].__name__}"
    if get_args(of):
        arguments = [_type(each) for each in get_args(of)]
        origin = get_origin(of)
        if getattr(origin, "__name__", "") in ("UnionType", "Union"):
            return "|".join(sorted(arguments))
        return f"{getattr(origin, '__name__', origin)}[{','.join(arguments)}]"
    if of is ...:
        return "..."
    if of is None or of is type(None):
        return "None"
    try:
        return stored_names.name_of(of) if isinstance(of, type) else str(of)
    except ProtocolError:
        return str(of.__qualname__)
