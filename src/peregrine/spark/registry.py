"""Which code an operator's name stands for: a file that workers look into before every batch.

The file holds pickled operators, so it may be written only by who may run code here. It is replaced whole; a worker
notices and loads what has changed, so an operator comes or changes while hosts run, from some batch on.
"""

# pyspark is optional, also where types are checked.
# mypy: disable-error-code="import-not-found"

import os
import tempfile
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from pyspark import cloudpickle

from peregrine.core.operator import Operator
from peregrine.errors import ConfigurationError, UnknownName
from peregrine.spark.published import current
from peregrine.types import OpId

_decode = msgspec.msgpack.Decoder(dict[OpId, bytes]).decode


def publish(file: Path, operators: Mapping[OpId, Operator], withdrawn: Iterable[OpId] = ()) -> None:
    """Add these operators to a registry or replace them, and take the withdrawn ones away."""
    known = _decode(file.read_bytes()) if file.exists() else {}
    known |= {op: dumps(operator) for op, operator in operators.items()}
    for op in withdrawn:
        known.pop(op, None)
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)  # readable by this user only
    with os.fdopen(handle, "wb") as written:
        written.write(msgspec.msgpack.encode(known))
        written.flush()
        os.fsync(written.fileno())
    os.replace(name, file)


def operator_of(file: str, op: OpId) -> Operator:
    """The operator of this name, as the file has it now."""
    pickled = current(file, "operators", _decode)
    if op not in pickled:
        raise UnknownName("operator", op, list(pickled))
    return _unpickle(op, pickled[op])


def names(file: str) -> list[OpId]:
    """The operators that there are now."""
    return list(current(file, "operators", _decode))


def dumps(code: Any) -> bytes:
    """As Spark sends code: by value, if it is not in a module that workers have."""
    cloud: Any = cloudpickle.dumps
    pickled: bytes = cloud(code)
    return pickled


@lru_cache(maxsize=1024)
def _unpickle(op: OpId, pickled: bytes) -> Operator:
    """The version of an operator is its bytes."""
    operator: Any = cloudpickle.loads(pickled)
    for method in ("on_row", "on_clock", "open_ends"):
        if not callable(getattr(operator, method, None)):
            raise ConfigurationError(f"operator {op!r} has no {method}", "give it what core/operator.py asks for")
    checked: Operator = operator
    return checked
