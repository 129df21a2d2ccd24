"""Errors across the wire: the one place where Peregrine's errors become Flight's, and Flight's become ours.

An error of a router keeps its kind, what it says and its remedy on the way (`extra_info`); what Flight itself raises
becomes a `TransportError`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pyarrow as pa
import pyarrow.flight as flight

from peregrine import errors
from peregrine.core.stored_names import name_of
from peregrine.errors import Busy, PeregrineError, ProtocolError, TransportError, Unauthorized, Unreachable

BUSY = "busy"
Told = tuple[list[str], str, str]  # an error as it travels: its kinds, what it says, its remedy
_decoder = msgspec.msgpack.Decoder(Told)
_ERRORS: dict[str, type[PeregrineError]] = {
    name_of(kind): kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PeregrineError)
}
_NAMES: dict[type, str] = {kind: name for name, kind in _ERRORS.items()}


@contextmanager
def told_to_the_client() -> Iterator[None]:
    """On the router's side: what is raised inside reaches the client as what it is."""
    try:
        yield
    except Busy as error:
        raise flight.FlightUnavailableError(BUSY) from error
    except PeregrineError as error:
        raise flight.FlightServerError(error.what, msgspec.msgpack.encode(told(error))) from error


@contextmanager
def told_by(whom: str) -> Iterator[None]:
    """On the client's side: whatever goes wrong inside becomes an error of ours."""
    try:
        yield
    except flight.FlightUnauthenticatedError as error:
        raise Unauthorized(f"{whom} does not know this token", "use the token file of its deployment") from error
    except flight.FlightUnavailableError as error:
        if str(error).startswith(BUSY):
            raise Busy(f"{whom} accepts no rows now", "wait a little and send the same again") from error
        raise _unreachable(whom, error) from error
    except (flight.FlightTimedOutError, flight.FlightCancelledError, ConnectionError, TimeoutError) as error:
        raise _unreachable(whom, error) from error
    except flight.FlightServerError as error:
        raise _as_it_was(whom, error) from error
    except (flight.FlightError, pa.ArrowException, OSError) as error:
        raise TransportError(
            f"{whom}: {_first_line(error)}", "its log tells more; restart it from its directory"
        ) from error


def told(error: PeregrineError) -> Told:
    """An error that has no name (it is of somebody else) goes as the nearest one above it that has."""
    return [_NAMES[kind] for kind in type(error).__mro__ if kind in _NAMES], error.what, error.remedy


def _as_it_was(whom: str, error: flight.FlightServerError) -> PeregrineError:
    try:
        return as_it_was(_decoder.decode(error.extra_info or b""))
    except msgspec.DecodeError:
        return TransportError(f"{whom}: {_first_line(error)}", "its log tells more")


def as_it_was(told: Told) -> PeregrineError:
    kinds, what, remedy = told
    for name in kinds:
        kind = _ERRORS.get(name)
        # A kind that builds its own text (UnknownName) arrives as the nearest one above it that does not.
        if kind is not None and (kind is PeregrineError or "__init__" not in vars(kind)):
            return kind(what, remedy)
    return ProtocolError(what, remedy)


def _unreachable(whom: str, error: Exception) -> TransportError:
    said = str(error)
    if "certificate verify failed" in said:
        return Unauthorized(
            f"{whom} has a certificate that the given CA has not signed: {_first_line(error)}",
            "name the CA of this router's deployment (ca=)",
        )
    if "wrong version number" in said:
        return Unauthorized(f"{whom} speaks no TLS", "leave out ca= in its address")
    if "Socket closed" in said and "failed to connect" in said:
        return Unreachable(
            f"{whom} hung up before a word was said: {_first_line(error)}",
            "if it speaks TLS, say whom to trust in its address (ca=), and who you are if it asks (cert=, key=); "
            "otherwise try again",
        )
    return Unreachable(
        f"{whom} does not answer: {_first_line(error)}",
        "see that its process runs; then send again, what it has seen it recognises",
    )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:300]
