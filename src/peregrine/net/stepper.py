"""The router machine, in one hand at a time: what was offered is made durable, stepped, performed and answered.

Whoever hands something over does that himself if nobody else is at it: to wake another thread and wait for it would
cost more than the step. Else it waits for its turn, with all that comes meanwhile: that is journaled together and
synced once (group commit), and stepped together as far as it may be (`core/gather.py`). Only then are effects performed
(decision 0001). What cannot be made sense of is refused before it is journaled. When a log of an effect fails, the
process has to end: what is in the journal is performed after the restart.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from peregrine.core import journal
from peregrine.core.admission import admit
from peregrine.core.gather import bundles
from peregrine.core.messages import (
    Attach,
    Attached,
    Begin,
    Event,
    Fetch,
    FromLink,
    FromSource,
    HandBack,
    Reached,
    Rehomed,
    Report,
    Send,
    Single,
    Stray,
    Tick,
    Together,
)
from peregrine.core.pressure import Hearing
from peregrine.core.router import Router
from peregrine.core.router_logs import Session, recover
from peregrine.errors import DiskFull, PeregrineError, ProtocolError, StorageError, Unreachable
from peregrine.net.protocol import News
from peregrine.net.settings import RouterSettings
from peregrine.net.store import Store
from peregrine.types import SiteId

GROUP_EVENTS, GROUP_BYTES = 1000, 8 << 20
NEWS_KEPT = 10_000
QUIET_S = 1.0  # between ticks while nothing waits for one
log = logging.getLogger(__name__)


@dataclass(slots=True)
class Handed:
    """An event with its bytes for the journal, or a question that is asked between two events."""

    event: Single | None
    raw: bytes
    ask: Callable[[], Any] | None
    answer: "Future[Any]"


class Stepper:
    def __init__(self, settings: RouterSettings, store: Store, failed: Callable[[BaseException], None]) -> None:
        """`failed` is called when nothing can go on, and must end the process."""
        self.store = store
        self.config = settings.router_config()
        self.on_sent: Callable[[Session], None] = lambda session: None
        self.on_ended: Callable[[], None] = lambda: None  # sessions have ended: those of the store that have
        self.on_fetch: Callable[[], None] = lambda: None
        self.acked: Callable[[], dict[Session, int]] = dict  # what each neighbour has acknowledged
        self._handing_back: set[HandBack] = set()  # since the last tick
        self._not_handed_back: set[HandBack] = set()  # which was told
        self._failed = failed
        self._tick_s = settings.tick_ms / 1000
        self._snapshot_bytes = int(settings.snapshot_mb * (1 << 20))
        self._queue: deque[list[Handed]] = deque()
        self._turn = threading.Lock()  # held by who has the machine
        self._stir = threading.Event()  # something waits in the queue that nobody has taken on
        self._stopping = False
        self._closed = False
        self._hosts_awaited = False
        self._quiet_until_s = time.monotonic()
        # News are numbered on from the time of the start: a restart never gives a number again.
        self._news: deque[News] = deque(maxlen=NEWS_KEPT)
        self._news_end = time.time_ns() // 1000
        self._news_came = threading.Condition()
        self._stepped = threading.Condition()
        self.journal_bytes = 0
        self.machine = self._recover()
        self._pressure = Hearing(self.machine)
        self._thread = threading.Thread(target=self._run, name="stepper", daemon=True)

    def _recover(self) -> Router:
        replayed = 0

        def replay(machine: Router, at: int, raw: bytes) -> None:
            nonlocal replayed
            self._step(machine, journal.decode(raw))
            self.journal_bytes += len(raw)
            replayed += 1

        machine = recover(self.store, lambda: Router(self.config), replay)
        for damage in self.store.recovered:
            log.warning("site=%s recovered=%r", self.config.site, damage)
        log.info("site=%s snapshot=%d replayed=%d", self.config.site, self.store.journal.end - replayed, replayed)
        return machine

    # --- from any thread ---

    def start(self) -> None:
        self._thread.start()

    def offer(self, event: Single, raw: bytes | None = None) -> Any:
        """Returns when the event is durable and its effects are performed; raises if it was refused."""
        return self.hand(event, raw).result()

    def hand(self, event: Single, raw: bytes | None = None) -> "Future[Any]":
        """As `offer`, without waiting for it."""
        return self.hand_all([(event, journal.encode(event) if raw is None else raw)])[0]

    def hand_all(self, events: Sequence[tuple[Single, bytes]]) -> "list[Future[Any]]":
        """At once: they are made durable together."""
        handed = [Handed(event, raw, None, Future()) for event, raw in events]
        self._hand_over(handed)
        return [each.answer for each in handed]

    def leave(self, event: Single) -> None:
        """For whoever has the machine next, and at the latest when a tick is due. Nobody hears what became of it."""
        self._queue.append([Handed(event, journal.encode(event), None, Future())])
        if self._hosts_awaited:
            self._stir.set()

    def ask(self, question: Callable[[], Any]) -> Any:
        """Evaluated between two events, on the thread that owns the machine."""
        asked = Handed(None, b"", question, Future())
        self._hand_over([asked])
        return asked.answer.result()

    def _hand_over(self, handed: list[Handed]) -> None:
        if not self._closed:
            self._queue.append(handed)
        if self._closed:  # also if it closed meanwhile: then nobody takes it any more
            self._refuse_all()
            raise _stopping(self.config.site)
        if self._turn.acquire(blocking=False):
            try:
                self._do_what_waits()
            finally:
                self._turn.release()
        if self._queue:  # somebody else has the machine, or had it when this came: the thread sees to it
            self._stir.set()

    def _do_what_waits(self) -> None:
        """With the machine in hand. A router that cannot go on must not answer anybody any more."""
        try:
            if self._closed:
                self._refuse_all()
                return
            group = self._take()
            if _needs_time(group):
                self._tell_time(group)
            self._do(group)
            if self.journal_bytes >= self._snapshot_bytes:
                self._stir.set()
        except BaseException as error:
            self._fail(error)

    def wait_until(self, there: Callable[[], bool], wait_s: float) -> None:
        """Until something is in a log, or for a while."""
        with self._stepped:
            self._stepped.wait_for(lambda: self._closed or there(), wait_s)

    @property
    def closed(self) -> bool:
        return self._closed

    def hear_pressure(self, pressed: bool) -> None:
        self.ask(lambda: self._pressure.hear(pressed, time.monotonic()))

    def news(self, after: int, wait_s: float) -> tuple[int, list[News]]:
        with self._news_came:
            self._news_came.wait_for(lambda: self._closed or self._news_end > after, wait_s)
            fresh = min(max(self._news_end - after, 0), len(self._news))
            return self._news_end, list(self._news)[len(self._news) - fresh :]

    def stop(self) -> None:
        """What was handed over before is done first."""
        self._stopping = True
        self._stir.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._turn:
            self._close()

    # --- the thread ---

    def _run(self) -> None:
        try:
            next_tick_s = time.monotonic()
            while not self._stopping:
                self._stir.wait(max(next_tick_s - time.monotonic(), 0.0))
                self._stir.clear()
                with self._turn:
                    self._hand_back()
                    group = self._take()
                    now_s = time.monotonic()
                    due = now_s >= next_tick_s
                    if due:
                        next_tick_s = now_s + self._tick_s
                        self._pressure.review(now_s)
                    # A tick is a record on the disk. Where nobody waits for it, it need not come often.
                    if (due and (self.machine.restless or now_s >= self._quiet_until_s)) or _needs_time(group):
                        self._tell_time(group)
                    self._do(group)
                    if self.journal_bytes >= self._snapshot_bytes:
                        self.snapshot()
            with self._turn:
                while self._queue:
                    self._do(self._take())
        except BaseException as error:
            self._fail(error)

    def _tell_time(self, group: list[Handed]) -> None:
        self._quiet_until_s = time.monotonic() + QUIET_S
        self._handing_back.clear()
        tick = Tick(time.time_ns() // 1_000_000)
        group.insert(0, Handed(tick, journal.encode(tick), None, Future()))

    def _fail(self, error: BaseException) -> None:
        log.critical("site=%s stopped: %s", self.config.site, error, exc_info=not isinstance(error, StorageError))
        self._close()
        self._failed(error)

    def _take(self) -> list[Handed]:
        group: list[Handed] = []
        size = 0
        while self._queue and len(group) < GROUP_EVENTS and size < GROUP_BYTES:
            more = self._queue.popleft()
            group += more
            size += sum(len(handed.raw) for handed in more)
        return group

    def _do(self, group: list[Handed]) -> None:
        try:
            runs = self._journal(group)
        except StorageError as error:
            # A full disk takes back all that was not synced: the whole group never happened, and may come again.
            for handed in group:
                if not handed.answer.done():
                    handed.answer.set_exception(error)
            log.error("site=%s journal: %s", self.config.site, error.what)
            if not isinstance(error, DiskFull):
                raise
            return
        sent: set[Session] = set()
        done: list[Handed] = []
        for run in runs:
            try:
                sent |= self._step(self.machine, _as_one(run), told=True)
                done += run
            except PeregrineError as error:
                for handed in run:
                    handed.answer.set_exception(_stopping(self.config.site) if _fatal(error) else error)
                if _fatal(error):
                    raise
        self._hosts_awaited = self.machine.legs.waits_for_hosts
        if runs:  # those who wait for it have more to do than those who wait for an answer: they get the interpreter
            with self._stepped:
                self._stepped.notify_all()
            time.sleep(0)
        for session in sent:
            self.on_sent(session)
        for handed in done:
            assert handed.event is not None
            handed.answer.set_result(self._answer(handed.event))
        for handed in group:
            if handed.ask is not None:
                try:
                    handed.answer.set_result(handed.ask())
                except Exception as error:  # of the one who asks, and no concern of the machine
                    handed.answer.set_exception(error)

    def _journal(self, group: list[Handed]) -> list[list[Handed]]:
        """Returns what is to be stepped at once, each piece a record of the journal."""
        end = self.store.journal.end
        size = 0
        runs = list(bundles([handed for handed in group if self._admitted(handed)], _event_of))
        for i, run in enumerate(runs):
            raw = run[0].raw if len(run) == 1 else journal.together([handed.raw for handed in run])
            self.store.journal.append(end + i, raw)
            size += len(raw)
        if runs:
            self.store.journal.sync()
        self.journal_bytes += size
        return runs

    def _admitted(self, handed: Handed) -> bool:
        if handed.event is None:
            return False
        try:
            admit(self.machine, handed.event)
        except PeregrineError as error:
            handed.answer.set_exception(error)
            return False
        return True

    def _step(self, machine: Router, event: Event, told: bool = False) -> set[Session]:
        """Returns the sessions in which there is something to send. What was refused once is refused again."""
        try:
            effects = machine.step(event)
        except PeregrineError:
            if told:
                raise
            return set()
        sent: set[Session] = set()
        for effect in effects:
            self.store.perform(effect)
            if isinstance(effect, Send):
                sent.add((effect.neighbour, effect.session))
            elif isinstance(effect, HandBack):
                self.on_ended()
                self._stir.set()  # what it asks for is handed by the thread
            elif isinstance(effect, Fetch):
                self.on_fetch()
            elif isinstance(effect, Stray) and not told:
                pass  # of long ago: a source that still strays does so again
            elif isinstance(effect, Report | Rehomed | Reached | Stray | Attached):
                with self._news_came:
                    self._news.append(effect)
                    self._news_end += 1
                    self._news_came.notify_all()
        return sent

    def _answer(self, event: Single) -> int | None:
        match event:
            case FromSource(source):
                return self.machine.acked_source(source)
            case FromLink(neighbour, session=session):
                return self.machine.acked_link(neighbour, session)
        return None

    def _hand_back(self) -> None:
        """What the machine waits for, asked for just now or before a restart. What was not taken (a full disk) is
        handed again after a tick; twice would be harmless.
        """
        for wanted in self.machine.hand_backs():
            if wanted not in self._handing_back:
                self._handing_back.add(wanted)
                acked_seq = self.acked().get((wanted.neighbour, wanted.session), -1)
                try:
                    self.hand(self.store.handed_back(wanted, acked_seq))
                except ProtocolError as error:  # the neighbour is at fault, not this router: others go on
                    if wanted not in self._not_handed_back:
                        self._not_handed_back.add(wanted)
                        log.error("site=%s neighbour=%s not handed back: %s", self.config.site, wanted.neighbour, error)

    def snapshot(self) -> None:
        """One that cannot be written is tried again later: the journal has everything."""
        started_s = time.monotonic()
        position = self.store.journal.end
        self.journal_bytes = 0
        try:
            self.store.snapshot(self.machine, position, self.acked())
        except ProtocolError as error:
            log.error("site=%s no snapshot: %s", self.config.site, error)
            return
        took_ms = (time.monotonic() - started_s) * 1000
        log.info("site=%s snapshot=%d took_ms=%.0f", self.config.site, position, took_ms)

    def _close(self) -> None:
        self._closed = True
        self._refuse_all()
        for waited_for in (self._news_came, self._stepped):
            with waited_for:
                waited_for.notify_all()

    def _refuse_all(self) -> None:
        while self._queue:
            with suppress(IndexError):  # several may refuse at once
                for handed in self._queue.popleft():
                    if not handed.answer.done():
                        handed.answer.set_exception(_stopping(self.config.site))


def _needs_time(group: list[Handed]) -> bool:
    """What is told with the time of the last tick: since when a device is connected, and when a migration began."""
    return any(isinstance(handed.event, Attach | Begin) for handed in group)


def _event_of(handed: Handed) -> Single:
    assert handed.event is not None
    return handed.event


def _as_one(run: list[Handed]) -> Event:
    return _event_of(run[0]) if len(run) == 1 else Together(tuple(map(_event_of, run)))


def _fatal(error: PeregrineError) -> bool:
    """A log of an effect has failed: what is journaled is performed after the restart."""
    return isinstance(error, StorageError)


def _stopping(site: SiteId) -> Unreachable:
    return Unreachable(f"router {site} is stopping", "offer the same again when it is back")
