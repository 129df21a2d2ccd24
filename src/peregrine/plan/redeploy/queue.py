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
        # By subject and version, from what was deployed before the last batch on. None: two different facts were told.
        self._told: dict[Subject, dict[int, Fact | None]] = {}
        self._deployed: dict[Subject, int] = {}  # versions: also of the last batch, unless they come back
        self._before: dict[Subject, int] = {}  # what was deployed before the last batch, of its subjects
        self._waiting: dict[Subject, Fact] = {}
        self._batches = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, event: TopologyEvent) -> Verdict:
        """A contradiction is an error, but it is remembered: neither side is believed, and what was told before them
        holds.
        """
        facts = facts_of(event)
        for fact in facts:
            self._check(fact)
        verdicts = [self._hear(fact) for fact in facts]
        for fact, verdict in zip(facts, verdicts, strict=True):
            if verdict is None:
                raise ConfigurationError(
                    f"{fact}, and something else was told of it with the same version {fact.version}",
                    "tell it again as it is, with a higher version",
                )
        return next(each for each in (Verdict.TAKEN, Verdict.STALE, Verdict.REPEATED) if each in verdicts)

    def _check(self, fact: Fact) -> None:
        if fact.version < 1:
            raise ConfigurationError(f"{fact}, with version {fact.version}", "count versions from 1 on")
        if fact.subject == (self._root,) and fact.value is None:
            raise ConfigurationError(f"{self._root!r} is the root and was removed", "keep it: everything leads to it")

    def _hear(self, fact: Fact) -> Verdict | None:
        """None: it contradicts what was told."""
        told = self._told.setdefault(fact.subject, {})
        repeated = told.get(fact.version) == fact
        contradicts = fact.version in told and not repeated
        told[fact.version] = None if contradicts else fact
        if fact.version < self._look(fact.subject):
            return Verdict.STALE
        if contradicts:
            return None
        return Verdict.REPEATED if repeated else Verdict.TAKEN

    def _look(self, subject: Subject) -> int:
        """What is believed waits, unless it is deployed. The version that holds."""
        told, deployed = self._told[subject], self._deployed.get(subject, 0)
        believed = max((fact for fact in told.values() if fact is not None), key=_version, default=None)
        if believed is not None and believed.version > deployed:
            self._waiting[subject] = believed
            return believed.version
        self._waiting.pop(subject, None)
        return deployed

    def batch(self) -> Batch | None:
        """Everything that waits."""
        if not self._waiting:
            return None
        facts = tuple(sorted(self._waiting.values(), key=lambda fact: fact.place_in_batch))
        self._before = {fact.subject: self._deployed.get(fact.subject, 0) for fact in facts}
        for subject, before in self._before.items():
            self._told[subject] = {version: fact for version, fact in self._told[subject].items() if version >= before}
            self._deployed[subject] = self._waiting.pop(subject).version
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
        """Of the last batch: they could not be deployed, or what was deployed for them was taken back."""
        for fact in facts:
            self._deployed[fact.subject] = self._before[fact.subject]
            self._look(fact.subject)


def _version(fact: Fact) -> int:
    return fact.version
