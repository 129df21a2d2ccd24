"""The keys that a message of a rehoming names, and what becomes of their routes.

The rule: of the keys that are named, only those change their route that take the one that is expected. Whatever a
marker has taught about the others meanwhile stays.
"""

from collections.abc import Callable

from peregrine.core.keyspace import KeySet
from peregrine.core.routes import Route
from peregrine.core.rules import RuleTable
from peregrine.types import OpId

Claims = tuple[tuple[OpId, KeySet], ...]


def keys_where(table: RuleTable[Route], wanted: Callable[[Route], bool]) -> Claims:
    found: list[tuple[OpId, KeySet]] = []
    for op in table.ops():
        found += [(op, keys) for route, keys in table.partition(op, everything(table, op)) if wanted(route)]
    return tuple(found)


def everything(table: RuleTable[Route], op: OpId) -> KeySet:
    return KeySet.everything(table.groups_of(op))


def take_keys(table: RuleTable[Route], keys: Claims, before: Route, after: Route) -> None:
    """Of these keys, those that take one route take another now."""
    for op, some in keys:
        for route, part in table.partition(op, some):
            if route == before:
                table.assign(op, part, after)


def without(some: Claims, others: Claims) -> Claims:
    rest = []
    for op, keys in some:
        for other, theirs in others:
            if other == op:
                keys -= theirs
        if keys:
            rest.append((op, keys))
    return tuple(rest)
