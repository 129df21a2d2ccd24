"""Calls between processes of one machine, beside Flight: a Unix socket whose name follows from the router's port.

A call of Flight costs about a millisecond, and now and then six; this one a tenth of that (decision 0026). What is said
is the same: the name and the body of an action, and before the first one the token, the site and the version. The name
of the socket is an abstract one (Linux): it needs no file, and ends with the process that has it.

    question   length of the name (1), length of the body (8), name, body
    answer     kind (1), length of the body (8), body; one, or PARTs and an END
"""

import socket
import struct
import sys
from contextlib import suppress

import msgspec

from peregrine.types import SiteId

HELLO = "hello"
DONE, FAULT, PART, END = range(4)
LARGE_BYTES = 1 << 16  # not copied to be sent in one piece
IS_HERE = sys.platform == "linux"
_head = struct.Struct("<BQ")


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """Every version understands this much of every other's."""

    token: str
    site: SiteId | None
    format: int = 0  # none was told before there were versions


def name_of(port: int) -> str:
    return f"\0peregrine-router-{port}"


def send(to: socket.socket, number: int, name: bytes, body: bytes) -> None:
    head = _head.pack(number, len(body)) + name
    if len(body) < LARGE_BYTES:
        to.sendall(head + body)
    else:
        to.sendall(head)
        to.sendall(body)


def receive_head(sender: socket.socket) -> tuple[int, int] | None:
    """None: it has hung up, and not in the middle of something."""
    raw = _receive(sender, _head.size)
    if not raw:
        return None
    if len(raw) < _head.size:
        raise _hung_up()
    number, size = _head.unpack(raw)
    return number, size


def receive(sender: socket.socket, size: int) -> bytes:
    raw = _receive(sender, size)
    if len(raw) < size:
        raise _hung_up()
    return bytes(raw)


def _receive(sender: socket.socket, size: int) -> bytes | bytearray:
    """Less than that, if the other side hangs up."""
    first = sender.recv(size)
    if len(first) == size or not first:
        return first
    whole = bytearray(size)
    whole[: len(first)] = first
    at, rest = len(first), memoryview(whole)
    while at < size:
        came = sender.recv_into(rest[at:])
        if not came:
            return bytes(rest[:at])
        at += came
    return whole


def hang_up(line: socket.socket) -> None:
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)  # who waits there wakes up; closing alone would not do that
    line.close()


def _hung_up() -> ConnectionResetError:
    return ConnectionResetError("the other side hung up in the middle of something")
