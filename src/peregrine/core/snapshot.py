"""A machine as bytes, and back: what a restart begins with instead of the whole journal.

The shell that keeps the bytes (net/snapshots.py) adds position and checksum.
"""

import pickle
from typing import Any


def encode(machine: object) -> bytes:
    return pickle.dumps(machine, protocol=5)


def decode(body: bytes) -> Any:
    """Whoever calls has seen to it that these are bytes of `encode`."""
    return pickle.loads(body)
