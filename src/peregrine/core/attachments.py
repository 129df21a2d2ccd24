"""Where mobile sources are connected."""

from peregrine.types import SiteId, SourceId


class Attachments:
    """Where each mobile source is now. Sources roam, so they are not part of the tree."""

    __slots__ = ("_site", "_sources")

    def __init__(self) -> None:
        self._site: dict[SourceId, SiteId] = {}
        self._sources: dict[SiteId, set[SourceId]] = {}

    def attach(self, source: SourceId, site: SiteId) -> SiteId | None:
        """Put a source at a site; the answer is where it was before."""
        before = self.detach(source)
        self._site[source] = site
        self._sources.setdefault(site, set()).add(source)
        return before

    def detach(self, source: SourceId) -> SiteId | None:
        """Forget a source; the answer is where it was."""
        before = self._site.pop(source, None)
        if before is not None:
            self._sources[before].remove(source)
            if not self._sources[before]:
                del self._sources[before]
        return before

    def at(self, source: SourceId) -> SiteId | None:
        return self._site.get(source)

    def sources_at(self, site: SiteId) -> tuple[SourceId, ...]:
        """Sorted by name."""
        return tuple(sorted(self._sources.get(site, ())))
