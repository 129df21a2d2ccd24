"""Facts that wait to be deployed: the newest of each subject, taken in batches (ISQD 3.1).

What a batch could not deploy comes back and is considered again with the next one, unless something newer about the
same subject has come meanwhile. A queue raises an error for what can never be deployed, and is then unchanged.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from peregrine.core.topology import Link
from peregrine.errors import ConfigurationError
from peregrine.plan.redeploy.events import Fact, Station, Subject, TopologyEvent, facts_of
from peregrine.types import SiteId


class Verdict(StrEnum):
    """What became of an event."""

    TAKEN = "taken"
    REPEATED = "repeated"  # known already
    STALE = "stale"  # something newer is known


@dataclass(frozen=True, slots=True)
class Batch:
    number: int
    facts: tuple[Fact, ...]  # at most one of each subject, what adds first


class TopologyQueue:
    def __init__(self, root: SiteId) -> None:
        self._root = root
        self._newest: dict[Subject, Fact] = {}  # that was ever offered
        self._doubted: dict[Subject, int] = {}  # versions of which two different facts were told
        self._waiting: dict[Subject, Fact] = {}
        self._batches = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, event: TopologyEvent) -> Verdict:
        """A contradiction is an error, but it is remembered: neither side is believed."""
        facts = facts_of(event)
        for fact in facts:
            self._check(fact)
        verdicts = {self._judge(fact) for fact in facts}
        contradicted = []
        for fact in facts:
            if self._judge(fact) is None:
                contradicted.append(fact)
                self._doubted[fact.subject] = fact.version
                self._waiting.pop(fact.subject, None)
            elif self._judge(fact) is Verdict.TAKEN:
                self._newest[fact.subject] = self._waiting[fact.subject] = fact
                self._doubted.pop(fact.subject, None)
        for fact in contradicted:
            raise ConfigurationError(
                f"{fact}, and something else was told of it with the same version {fact.version}",
                "tell it again as it is, with a higher version",
            )
        for verdict in (Verdict.TAKEN, Verdict.STALE):
            if verdict in verdicts:
                return verdict
        return Verdict.REPEATED

    def _check(self, fact: Fact) -> None:
        if fact.version < 1:
            raise ConfigurationError(f"{fact}, with version {fact.version}", "count versions from 1 on")
        if fact.subject == (self._root,) and fact.value is None:
            raise ConfigurationError(f"{self._root!r} is the root and was removed", "keep it: everything leads to it")

    def _judge(self, fact: Fact) -> Verdict | None:
        """None: it contradicts what was told."""
        known = self._newest.get(fact.subject)
        if known is None or fact.version > known.version:
            return Verdict.TAKEN
        if fact.version < known.version:
            return Verdict.STALE
        return Verdict.REPEATED if fact == known else None

    def batch(self) -> Batch | None:
        """Everything that waits."""
        if not self._waiting:
            return None
        facts = tuple(sorted(self._waiting.values(), key=lambda fact: fact.place_in_batch))
        self._waiting.clear()
        return Batch(self.next_number(), facts)

    def told(self, subject: Subject) -> Fact | None:
        """The newest that waits to be deployed, or could not be."""
        return self._waiting.get(subject)

    def told_of_links(self, site: SiteId) -> Iterator[tuple[SiteId, Link | None]]:
        """As `told`: the other ends of its links. None: this link is gone."""
        for subject, fact in self._waiting.items():
            if len(subject) == 2 and site in subject and not isinstance(fact.value, Station):
                yield subject[0] if subject[1] == site else subject[1], fact.value

    def next_number(self) -> int:
        """Of the next batch, or of a redeployment for which no fact is needed."""
        self._batches += 1
        return self._batches

    def put_back(self, facts: Iterable[Fact]) -> None:
        """They could not be deployed, or what was deployed for them was taken back."""
        for fact in facts:
            if self._newest.get(fact.subject) == fact and fact.subject not in self._doubted:
                self._waiting.setdefault(fact.subject, fact)
