"""What tasks of Spark and the process of a continuous host say to each other, over a socket of this machine.

The socket has a name and no file (Linux's abstract names), so nothing is left behind by whoever dies; only processes of
the same user are talked to. While a question is worked on, a beat comes now and then: silence means that the other one
is dead or stopped.
"""

import hashlib
import os
import socket
import struct
import threading
from types import TracebackType

import msgspec

from peregrine.core.format_version import FORMAT
from peregrine.core.large import Sizes
from peregrine.core.shard import Shard
from peregrine.types import OpId, PlaceId

BEAT_S = 0.5
SILENT_S = 3.0
SLOTS = 4  # a process that is silent keeps its name: the next one takes another
_LENGTH = struct.Struct(">Q")
_PEER = struct.Struct("3i")  # pid, uid, gid


class Settings(msgspec.Struct, frozen=True):
    """What the process of a host needs to know."""

    served: str
    token_file: str
    registry: str
    shards: int
    chunk_bytes: int
    sizes: Sizes
    chunks_durable: bool
    patience_s: float  # with a router that is away
    lease_s: float  # how long it goes on without a task
    python: str = ""  # with which it is started; else with that of the task


class Attach(msgspec.Struct, frozen=True, tag="attach", array_like=True):
    """A task of an epoch: what has changed since `held`, when the log has been applied up to `end`?"""

    place: PlaceId
    op: OpId
    shard: int
    held: int
    end: int


class Load(msgspec.Struct, frozen=True, tag="load", array_like=True):
    """The answer to `Need`: this is what Spark has committed."""

    attach: Attach
    loaded: Shard


class End(msgspec.Struct, frozen=True, tag="end", array_like=True):
    """The host ends: no more epochs."""


class Ping(msgspec.Struct, frozen=True, tag="ping", array_like=True):
    """Is anybody there?"""


class Need(msgspec.Struct, frozen=True, tag="need", array_like=True):
    """It does not have this shard."""


class Taken(msgspec.Struct, frozen=True, tag="taken", array_like=True):
    shard: Shard


class Done(msgspec.Struct, frozen=True, tag="done", array_like=True):
    pid: int


class Failed(msgspec.Struct, frozen=True, tag="failed", array_like=True):
    what: str
    remedy: str


Question = Attach | Load | End | Ping
Answer = Need | Taken | Done | Failed
_question: msgspec.msgpack.Decoder[Question] = msgspec.msgpack.Decoder(Question)
_answer: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


def name_of(host: str, slot: int) -> str:
    """The name of the socket: of one host, of one user. A process of another version has another."""
    return "peregrine-" + hashlib.sha256(f"{FORMAT} {os.getuid()} {host} {slot}".encode()).hexdigest()[:32]


class Talk:
    """One end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._send = threading.Lock()
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        if _PEER.unpack(peer)[1] != os.getuid():
            connection.close()
            raise ConnectionRefusedError("the process at the other end is of another user")

    @classmethod
    def to(cls, name: str) -> "Talk":
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(SILENT_S)
            connection.connect(f"\0{name}")
            return cls(connection)
        except BaseException:
            connection.close()
            raise

    def ask(self, question: Question) -> Answer:
        """Raises `OSError` when nobody answers."""
        self._write(msgspec.msgpack.encode(question))
        while not (body := self._read()):
            pass  # a beat
        return _answer.decode(body)

    def next_question(self) -> Question | None:
        """None: the other end has closed."""
        try:
            return _question.decode(self._read())
        except (EOFError, ConnectionError):
            return None

    def answer(self, answer: Answer) -> None:
        self._write(msgspec.msgpack.encode(answer))

    def beating(self) -> "Beating":
        return Beating(self)

    def beat(self) -> None:
        self._write(b"")

    def close(self) -> None:
        self._connection.close()

    def _write(self, body: bytes) -> None:
        with self._send:
            self._connection.sendall(_LENGTH.pack(len(body)) + body)

    def _read(self) -> bytes:
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        return self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        parts = []
        while count:
            part = self._connection.recv(min(count, 1 << 20))
            if not part:
                raise ConnectionResetError("the other end has gone")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


class Beating:
    """While a question is worked on."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="beat", daemon=True)

    def _run(self) -> None:
        while not self._end.wait(BEAT_S):
            try:
                self._talk.beat()
            except OSError:
                return

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()
