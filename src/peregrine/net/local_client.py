"""The caller's side of `net/local_socket.py`: lines to the router of a port, opened as calls need them."""

import socket
import threading
from collections.abc import Generator, Iterator

import msgspec

from peregrine.core.format_version import FORMAT
from peregrine.errors import PeregrineError, ProtocolError
from peregrine.net import local_socket as local
from peregrine.net.faults import Told, as_it_was
from peregrine.types import SiteId

_told = msgspec.msgpack.Decoder(Told)


class LocalClient:
    """Threads may share one: each call has a line of its own, and lines are used again."""

    def __init__(self, port: int, token: str, site: SiteId | None, timeout_s: float) -> None:
        self._name = local.name_of(port)
        self._hello = msgspec.msgpack.encode(local.Hello(token, site, FORMAT))
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._idle: list[socket.socket] = []
        self._open: set[socket.socket] = set()

    @classmethod
    def of(cls, address: str, token: str, site: SiteId | None, timeout_s: float) -> "LocalClient | None":
        """None: this address is not one of this machine without TLS."""
        host, _, port = address.rpartition(":")
        if local.IS_HERE and host in ("127.0.0.1", "localhost") and port.isdigit():
            return cls(int(port), token, site, timeout_s)
        return None

    def act(self, name: str, body: bytes) -> bytes | None:
        """None: nobody has this name. Raises OSError when the router goes meanwhile."""
        called = self._call(name, body)
        if called is None:
            return None
        line, (kind, size) = called
        try:
            answer = local.receive(line, size)
        except BaseException:
            self._drop(line)
            raise
        self._give_back(line)
        if kind == local.FAULT:
            raise as_it_was(_told.decode(answer))
        return answer

    def act_in_parts(self, name: str, body: bytes) -> Iterator[bytes] | None:
        called = self._call(name, body)
        return None if called is None else self._parts(*called)

    def act_in_bunches(self, name: str, body: bytes, most: int) -> Iterator[list[bytes]] | None:
        """Of an answer that does not end by itself: what has come by now, again and again."""
        called = self._call(name, body, endless=True)
        return None if called is None else self._bunches(*called, most)

    def close(self) -> None:
        """Also of who waits for an answer: it hears that the line has gone."""
        with self._lock:
            self._idle.clear()
            lines, self._open = self._open, set()
        for line in lines:
            local.hang_up(line)

    def _parts(self, line: socket.socket, head: tuple[int, int]) -> Generator[bytes, None, None]:
        """Who leaves before the end hangs up."""
        ended = False
        try:
            while True:
                kind, size = head
                part = local.receive(line, size)
                if kind != local.PART:
                    ended = True
                    if kind == local.FAULT:
                        raise as_it_was(_told.decode(part))
                    return
                yield part
                head = _head(line)
        finally:
            if ended:
                self._give_back(line)
            else:
                self._drop(line)

    def _bunches(self, line: socket.socket, head: tuple[int, int], most: int) -> Iterator[list[bytes]]:
        """What came before an error is told before it is raised."""
        parts = self._parts(line, head)
        try:
            for part in parts:
                bunch, trouble = [part], None
                try:
                    while len(bunch) < most and _has_something(line):
                        bunch.append(next(parts))
                except StopIteration:
                    pass
                except (OSError, PeregrineError) as error:
                    trouble = error
                yield bunch
                if trouble is not None:
                    raise trouble
        finally:
            parts.close()

    def _call(self, name: str, body: bytes, endless: bool = False) -> tuple[socket.socket, tuple[int, int]] | None:
        """A line on which the answer has begun. One that was used before may have gone with the router of then: what
        was said on it is said again on a new one. A router recognises what it has had.
        """
        with self._lock:
            line = self._idle.pop() if self._idle else None
        if line is not None:
            try:
                return line, self._say(line, name, body, endless)
            except BaseException as error:
                self._drop(line)
                if not isinstance(error, OSError) or isinstance(error, TimeoutError):
                    raise
                self._forget_idle()
        line = self._connect()
        if line is None:
            return None
        try:
            return line, self._say(line, name, body, endless)
        except BaseException:
            self._drop(line)
            raise

    def _say(self, line: socket.socket, name: str, body: bytes, endless: bool) -> tuple[int, int]:
        line.settimeout(None if endless else self._timeout_s)
        local.send(line, len(name), name.encode(), body)
        return _head(line)

    def _connect(self) -> socket.socket | None:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.settimeout(self._timeout_s)
        try:
            line.connect(self._name)
        except (ConnectionRefusedError, BlockingIOError):  # nobody is there, or too many wait to be let in
            line.close()
            return None
        with self._lock:
            self._open.add(line)
        try:
            local.send(line, len(local.HELLO), local.HELLO.encode(), self._hello)
            kind, size = _head(line)
            said = local.receive(line, size)
            if kind == local.FAULT:
                raise as_it_was(_told.decode(said))
        except BaseException:
            self._drop(line)
            raise
        return line

    def _give_back(self, line: socket.socket) -> None:
        with self._lock:
            if line in self._open:
                self._idle.append(line)

    def _drop(self, line: socket.socket) -> None:
        with self._lock:
            self._open.discard(line)
        line.close()

    def _forget_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for line in idle:
            self._drop(line)


def _has_something(line: socket.socket) -> bool:
    """Also if it has hung up: who reads then finds that out."""
    try:
        line.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    return True


def _head(line: socket.socket) -> tuple[int, int]:
    head = local.receive_head(line)
    if head is None:
        raise ConnectionResetError("the router hung up")
    if head[0] not in (local.DONE, local.FAULT, local.PART, local.END):
        raise ProtocolError(f"an answer of the unknown kind {head[0]}", "run the same version on both sides")
    return head
