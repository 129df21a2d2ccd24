"""One place of a continuous host: the log of its router comes as it grows, and is applied at once.

Outputs are with the router before the state that they left behind can be taken, as everywhere. A shard that is loaded
later, and holds less than the others, makes the log come once more from there: each shard knows what it has had.
"""

import logging
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import msgspec

from peregrine.core import wire
from peregrine.core.host import Output, by_group
from peregrine.core.messages import Ahead, FromAnyHost
from peregrine.core.outgoing import outgoing
from peregrine.core.rows import Entry, length
from peregrine.core.shard import Shard, Unit, is_awaited
from peregrine.errors import PeregrineError, TransportError, Unauthorized
from peregrine.net import protocol
from peregrine.net.client import RouterClient
from peregrine.net.settings import read_token
from peregrine.spark.applying import Applier
from peregrine.spark.served import served_by
from peregrine.spark.talk import Attach, Taken
from peregrine.spark.worker import offer_all, patiently
from peregrine.types import OpId, PlaceId

AGAIN_S = 0.1  # after a router was away
AWAITED_S = 5.0  # for so long the router is told how far this is, when keys have come
_groups = msgspec.msgpack.Decoder(dict[OpId, int])
_entries = msgspec.msgpack.Decoder(list[tuple[int, bytes]])
log = logging.getLogger(__name__)


class Following:
    def __init__(
        self, place: PlaceId, served: str, token_file: str, shards: int, applier: Applier, patience_s: float
    ) -> None:
        self._place = place
        self._served = served
        self._token = read_token(Path(token_file))
        self._shards = shards
        self._applier = applier
        self._patience_s = patience_s
        self._stir = threading.Condition()
        self._units: dict[tuple[OpId, int], Unit] = {}
        self._position: int | None = None  # None: nobody follows
        self._round = 0  # of following: who finds that it is not his any more stops
        self._failure: PeregrineError | None = None
        self._awaited_until_s = float("-inf")

    # --- for tasks ---

    def load(self, op: OpId, shard: int, loaded: Shard) -> None:
        with self._stir:
            self._units[op, shard] = Unit(loaded, partial(self._applier.apply, self._place, op))
            if self._position is None or loaded.upto < self._position:
                self._position = loaded.upto
                self._round += 1
                threading.Thread(
                    target=self._follow, args=(self._round, loaded.upto), name=f"follow-{self._place}", daemon=True
                ).start()

    def take(self, asked: Attach) -> Taken | None:
        """When the log has been applied to the end of the epoch; None: it does not have this shard, or no longer."""
        with self._stir:
            unit = self._units.get((asked.op, asked.shard))
            if unit is None:
                return None
            self._stir.wait_for(
                lambda: self._failure or unit.upto >= asked.end or self._units.get((asked.op, asked.shard)) is not unit
            )
            if self._failure is not None:
                raise self._failure
            return Taken(unit.take(asked.held)) if self._units.get((asked.op, asked.shard)) is unit else None

    # --- the thread that follows ---

    def _follow(self, round: int, offset: int) -> None:
        try:
            while self._round == round:
                try:
                    offset = self._follow_while_it_is_there(round, offset)
                except Unauthorized:
                    raise
                except TransportError as error:
                    log.warning("place=%s %s", self._place, error.what)
                    time.sleep(AGAIN_S)
        except PeregrineError as error:
            self._fail(round, error)
        except Exception as error:
            log.exception("place=%s", self._place)
            self._fail(round, PeregrineError(f"{type(error).__name__}: {error}", "see the log of the executor"))

    def _follow_while_it_is_there(self, round: int, offset: int) -> int:
        """Returns where to go on when the router has ended; what it raises then says the same."""
        served = served_by(self._served).get(self._place)
        if served is None:  # its site has left
            self._lose(round)
            return offset
        with RouterClient(served.address, self._token) as router:
            groups: Mapping[OpId, int] | None = None
            for waiting in router.follow(self._place, offset):
                if groups is None:
                    groups, waiting = _groups.decode(waiting[0]), waiting[1:]
                raws = [
                    each for frame in waiting if frame and frame != protocol.LOST for each in _entries.decode(frame)
                ]
                if raws:
                    entries = [(at, wire.decode_entry(raw)) for at, raw in raws]
                    self._apply(round, router, entries, groups)
                    offset = entries[-1][0] + length(entries[-1][1])
                if protocol.LOST in waiting:
                    self._lose(round)
                if self._round != round:
                    return offset
            return offset

    def _apply(
        self, round: int, router: RouterClient, entries: list[tuple[int, Entry]], groups: Mapping[OpId, int]
    ) -> None:
        with self._stir:
            if self._round != round:
                return
            outputs: dict[OpId, list[tuple[int, list[Output]]]] = {}
            all_here = True
            for (op, group), mine in by_group(entries, groups).items():
                unit = self._units.get((op, group % self._shards))
                all_here &= unit is not None
                fresh = [] if unit is None else [each for each in mine if each[0] >= unit.upto]
                if unit is not None and fresh:
                    outputs.setdefault(op, []).append((group, unit.apply(group, fresh)))
            end = entries[-1][0] + length(entries[-1][1])
            if is_awaited(entries):
                self._awaited_until_s = time.monotonic() + AWAITED_S
            awaited = all_here and time.monotonic() <= self._awaited_until_s
            told: list[FromAnyHost | Ahead] = []
            for op, of_groups in outputs.items():
                told += outgoing(self._place, op, of_groups)
            if awaited:
                told.append(Ahead(self._place, end))
            if told:
                patiently(lambda: offer_all(router, told), self._patience_s)
            self._position = end
            for unit in self._units.values():
                unit.upto = max(unit.upto, self._position)
            self._stir.notify_all()

    def _lose(self, round: int) -> None:
        """Somebody else serves this place, or nobody: what is here is only a copy, and need not be kept."""
        with self._stir:
            if self._round == round:
                log.warning("place=%s is no longer served here", self._place)
                self._round += 1
                self._position = None
                self._units.clear()
                self._stir.notify_all()

    def _fail(self, round: int, error: PeregrineError) -> None:
        with self._stir:
            if self._round == round:
                self._failure = error
                self._stir.notify_all()
