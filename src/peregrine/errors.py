"""Errors by blame, each with what to do next.

    PeregrineError
    ├── ConfigurationError   the user's files or arguments
    │   ├── UnknownName      a site, place, operator or mechanism that does not exist
    │   └── PlanError        a migration or placement that cannot be carried out
    │       └── OverlapError it touches keys that another migration is moving
    ├── ProtocolError        what another component sent breaks the protocol
    │   └── CorruptMarker    a message that does not decode, or names what does not exist
    ├── TransportError       a router that cannot be reached, or does not take what it is given
    │   ├── Unreachable      nobody answers, or not in time: try again, what is repeated is recognised
    │   ├── Busy             back-pressure: wait a little and send the same again
    │   └── Unauthorized     the token is not the one of this router
    └── StorageError         a disk, or what is on it
        ├── CorruptLog       a log is damaged where it had been whole
        ├── DiskFull         no room: what was appended since the last sync was taken back
        └── MissingChunk     a piece of large state is not where it should be

Assertions are for our own bugs; these are for the world. An error that is raised has changed nothing.
"""


class PeregrineError(Exception):
    """`what` names the thing that is wrong, `remedy` says what to do about it."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}\n  remedy: {remedy}")
        self.what = what
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:
        # An exception would be made again from its text alone; machines keep errors (why something was put off).
        return _again, (type(self), self.what, self.remedy)


def _again(kind: type[PeregrineError], what: str, remedy: str) -> PeregrineError:
    error = kind.__new__(kind)
    PeregrineError.__init__(error, what, remedy)
    return error


class ConfigurationError(PeregrineError):
    pass


class UnknownName(ConfigurationError):
    """A name that nothing here has; the remedy lists the names that exist."""

    def __init__(self, kind: str, name: str, known: list[str]) -> None:
        super().__init__(f"unknown {kind} {name!r}", f"use one of: {', '.join(sorted(known)) or '(none defined)'}")


class PlanError(ConfigurationError):
    pass


class OverlapError(PlanError):
    pass


class ProtocolError(PeregrineError):
    pass


class CorruptMarker(ProtocolError):
    pass


class TransportError(PeregrineError):
    pass


class Unreachable(TransportError):
    pass


class Busy(TransportError):
    pass


class Unauthorized(TransportError):
    pass


class StorageError(PeregrineError):
    pass


class CorruptLog(StorageError):
    pass


class DiskFull(StorageError):
    """What was appended since the last sync was taken back; what had been synced is there."""


class MissingChunk(StorageError):
    pass
