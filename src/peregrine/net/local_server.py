"""The router's side of `net/local_socket.py`: a thread for each line that somebody of this machine has opened."""

import hmac
import logging
import socket
import threading
from collections.abc import Callable, Iterator

import msgspec

from peregrine.core.format_version import FORMAT
from peregrine.errors import ConfigurationError, PeregrineError, TransportError, Unauthorized, Unreachable
from peregrine.net import local_socket as local
from peregrine.net import protocol
from peregrine.net.faults import told
from peregrine.types import SiteId

BACKLOG = 1024
Act = Callable[[str, bytes], bytes | Iterator[bytes]]  # the answer to an action, or its parts
_hello = msgspec.msgpack.Decoder(local.Hello)
_NOBODY = local.Hello("", None)
log = logging.getLogger(__name__)


class LocalServer:
    def __init__(self, port: int, token: str, site: SiteId, act: Act) -> None:
        self._token = token
        self._site = site
        self._act = act
        self._lock = threading.Lock()
        self._lines: set[socket.socket] = set()
        self._stopping = False
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listener.bind(local.name_of(port))
        except OSError as error:
            self._listener.close()
            raise ConfigurationError(
                f"somebody has the name {local.name_of(port)[1:]!r} of the router of {site}", "choose another port"
            ) from error
        self._listener.listen(BACKLOG)
        self._accepting = threading.Thread(target=self._accept, name="local", daemon=True)
        self._accepting.start()

    def stop(self) -> None:
        self._stopping = True
        with self._lock:
            for each in (self._listener, *self._lines):
                local.hang_up(each)
        self._accepting.join()  # the name is free when nobody waits at it any more

    def _accept(self) -> None:
        while not self._stopping:
            try:
                line, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._lines.add(line)
            threading.Thread(target=self._serve, args=(line,), name="line", daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        try:
            if self._comes_in(line):
                while (question := _question(line)) is not None:
                    self._answer(line, *question)
        except OSError as error:
            log.debug("site=%s a line ended: %s", self._site, error)
        finally:
            with self._lock:
                self._lines.discard(line)
            line.close()

    def _comes_in(self, line: socket.socket) -> bool:
        """Who has the token, speaks this version and is at the right door: after restarts a port may be another's."""
        said = _question(line)
        if said is None:
            return False
        try:
            hello = _hello.decode(said[1]) if said[0] == local.HELLO else _NOBODY
        except msgspec.DecodeError:
            hello = _NOBODY
        refused: PeregrineError | None = None
        if not hmac.compare_digest(hello.token.encode(), self._token.encode()):
            refused = Unauthorized(
                f"the router of {self._site} does not know this token", "use the token file of its deployment"
            )
        elif hello.format != FORMAT:
            refused = protocol.other_version(f"the router of {self._site}", str(hello.format or "none"))
        elif hello.site not in (None, self._site):
            refused = Unreachable(f"the router of {self._site} listens there now", "ask again where it is")
        if refused is None:
            local.send(line, local.DONE, b"", b"")
            return True
        local.send(line, local.FAULT, b"", msgspec.msgpack.encode(told(refused)))
        return False

    def _answer(self, line: socket.socket, name: str, body: bytes) -> None:
        try:
            answer = self._act(name, body)
            parts = None if isinstance(answer, bytes) else answer
        except Exception as error:
            local.send(line, local.FAULT, b"", self._fault(name, error))
            return
        if parts is None:
            assert isinstance(answer, bytes)
            local.send(line, local.DONE, b"", answer)
            return
        while True:
            try:
                part = next(parts, None)
            except Exception as error:
                local.send(line, local.FAULT, b"", self._fault(name, error))
                return
            if part is None:
                local.send(line, local.END, b"", b"")
                return
            local.send(line, local.PART, b"", part)

    def _fault(self, name: str, error: Exception) -> bytes:
        if not isinstance(error, PeregrineError):  # whatever it is, who asked must know
            log.error("site=%s %s", self._site, name, exc_info=error)
            error = TransportError(f"the router of {self._site}: {type(error).__name__}: {error}", "its log tells more")
        return msgspec.msgpack.encode(told(error))


def _question(line: socket.socket) -> tuple[str, bytes] | None:
    head = local.receive_head(line)
    if head is None:
        return None
    name = local.receive(line, head[0]).decode()
    return name, local.receive(line, head[1])
