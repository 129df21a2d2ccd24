"""A machine as bytes, and back: what a restart begins with instead of the whole journal.

A pickle, in which classes and functions stand under their stored names (core/stored_names.py), behind the version of
the format. What has no such name is refused when it is written; and when it is read, before anything of it is called.
Arrays and batches of rows are written here, as the libraries' own way changes with their versions. The shell that keeps
the bytes (net/snapshots.py) adds position and checksum.
"""

import io
import pickle
import struct
from collections.abc import Callable
from enum import EnumType
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from peregrine.core.format_version import FORMAT
from peregrine.core.rows import ROW_SCHEMA
from peregrine.core.stored_names import name_of, named
from peregrine.errors import ProtocolError

_VERSION = struct.Struct("<H")
REMEDY = "open it with the version of Peregrine that wrote it"
_Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


def encode(machine: object) -> bytes:
    """Raises a ProtocolError if something in it has no name under which it is stored."""
    body = io.BytesIO(_VERSION.pack(FORMAT))
    body.seek(_VERSION.size)
    _Writer(body, protocol=5).dump(machine)
    return body.getvalue()


def decode(body: bytes) -> Any:
    """Raises a ProtocolError for another version, and for what holds anything but stored names."""
    (version,) = _VERSION.unpack_from(body)
    if version != FORMAT:
        raise ProtocolError(f"a machine of format {version}, and this version reads format {FORMAT}", REMEDY)
    return _Reader(io.BytesIO(memoryview(body)[_VERSION.size :])).load()


class _Writer(pickle.Pickler):
    def reducer_override(self, thing: Any) -> Any:
        reduce = _REDUCED.get(type(thing))
        if reduce is not None:
            return reduce(thing)
        if isinstance(thing, type):
            return _by_name(thing)
        name_of(type(thing))  # what has none is refused
        return NotImplemented


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Asked for the functions below only, so that the module need not stay where it is."""
        found = _DOORS.get(name)
        if found is None:
            raise ProtocolError(f"a snapshot wants {module}.{name}, which is not stored like that", REMEDY)
        return found


# --- the functions whose names are in a snapshot ---


def stored(name: str) -> Any:
    return named(name)


def method(of: Any, name: str) -> Any:
    return MethodType(named(name), of)


def array(kind: str, shape: tuple[int, ...], raw: bytes) -> npt.NDArray[Any]:
    return np.frombuffer(raw, kind).reshape(shape).copy()


def batch(raw: bytes) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(pa.py_buffer(raw), ROW_SCHEMA)


_DOORS: dict[str, Callable[..., Any]] = {each.__name__: each for each in (stored, method, array, batch)}


# --- and how they are written ---


def _by_name(thing: Any) -> Any:
    if _DOORS.get(thing.__name__) is thing:
        return NotImplemented  # pickle writes its name
    return stored, (name_of(thing),)


def _method(thing: MethodType) -> _Reduced:
    return method, (thing.__self__, name_of(thing.__func__))


def _array(thing: npt.NDArray[Any]) -> _Reduced:
    if thing.dtype.hasobject:
        raise ProtocolError("an array of objects cannot be stored", "keep them in a list")
    return array, (thing.dtype.str, thing.shape, thing.tobytes())


def _batch(thing: pa.RecordBatch) -> _Reduced:
    if thing.schema != ROW_SCHEMA:
        raise ProtocolError("a batch that does not hold rows cannot be stored", "keep rows of ROW_SCHEMA only")
    return batch, (thing.serialize().to_pybytes(),)


_REDUCED: dict[type[Any], Callable[[Any], Any]] = {
    type: _by_name,
    EnumType: _by_name,
    FunctionType: _by_name,
    BuiltinFunctionType: _by_name,
    MethodType: _method,
    np.ndarray: _array,
    pa.RecordBatch: _batch,
}
