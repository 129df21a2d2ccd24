"""Which sources produce for which keys, asked both ways."""

from collections.abc import Iterator

from peregrine.core.keyspace import KeySet, group_of, stable_hash
from peregrine.core.validity import FedKeys
from peregrine.plan.redeploy.changes import Changes
from peregrine.types import OpId, SiteId, SourceId


class Feeding:
    """Sources, where they are attached, and what they feed."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._site: dict[SourceId, SiteId] = {}
        self._feeds: dict[SourceId, FedKeys] = {}
        self._at: dict[SiteId, dict[SourceId, None]] = {}
        self._of_key: dict[tuple[OpId, str], dict[SourceId, None]] = {}
        self._of_whole: dict[tuple[OpId, int], dict[SourceId, None]] = {}  # feed the whole group, but for single keys
        self._in_group: dict[tuple[OpId, int], dict[SourceId, None]] = {}  # feed anything of the group

    def attach(self, source: SourceId, site: SiteId, feeds: FedKeys | None = None) -> None:
        """It is there now; without `feeds` it feeds what it did."""
        changes = self._changes
        if source in self._site:
            changes.remove_in(self._at, self._site[source], source)
        changes.put(self._site, source, site)
        changes.put_in(self._at, site, source, None)
        if feeds is not None:
            self._forget(source)
            changes.put(self._feeds, source, feeds)
            for op, keys in feeds:
                for name in keys.plus:
                    changes.put_in(self._of_key, (op, name), source, None)
                for group in keys.whole:
                    changes.put_in(self._of_whole, (op, group), source, None)
                for group in keys.touched_groups():
                    changes.put_in(self._in_group, (op, group), source, None)

    def detach(self, source: SourceId) -> None:
        """It is no more; one that nobody knows is not, either."""
        if source in self._site:
            self._forget(source)
            self._changes.remove_in(self._at, self._site[source], source)
            self._changes.remove(self._site, source)
            self._changes.remove(self._feeds, source)

    def _forget(self, source: SourceId) -> None:
        for op, keys in self._feeds.get(source, ()):
            for name in keys.plus:
                self._changes.remove_in(self._of_key, (op, name), source)
            for group in keys.touched_groups():
                self._changes.remove_in(self._of_whole, (op, group), source)
                self._changes.remove_in(self._in_group, (op, group), source)

    def sites(self) -> Iterator[SiteId]:
        """Where there are sources."""
        return iter(self._at)

    def __contains__(self, source: SourceId) -> bool:
        return source in self._site

    def at(self, site: SiteId) -> tuple[SourceId, ...]:
        return tuple(sorted(self._at.get(site, ())))

    def site(self, source: SourceId) -> SiteId:
        return self._site[source]

    def feeds(self, source: SourceId) -> FedKeys:
        return self._feeds[source]

    def sources_of(self, op: OpId, keys: KeySet) -> Iterator[SourceId]:
        """Whoever produces for any of these keys. Lazily: who wants to know only whether there are many stops early."""
        seen: set[SourceId] = set()
        for source in self._candidates(op, keys):
            if source not in seen:
                seen.add(source)
                if any(fed == op and not its_keys.isdisjoint(keys) for fed, its_keys in self._feeds[source]):
                    yield source

    def _candidates(self, op: OpId, keys: KeySet) -> Iterator[SourceId]:
        for group in keys.whole:
            yield from self._in_group.get((op, group), ())
        for name in keys.plus:
            yield from self._of_key.get((op, name), ())
            yield from self._of_whole.get((op, group_of(stable_hash(name), keys.groups)), ())
