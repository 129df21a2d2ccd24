"""What should have come out: the same operators over the same rows in one place, where nothing moves and nothing fails.

Pure. The same comparison serves every deployment: results of each (sink, key, source) in order, and the state of every
key. Rows of one source and key are in the order in which they were sent; between sources no order is promised, so
operators whose outputs depend on the interleaving of sources cannot be compared this way.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from peregrine.core import state
from peregrine.core.chain import in_order
from peregrine.core.host import apply, by_group
from peregrine.core.operator import Operator, OpSpec
from peregrine.core.rows import Row, Rows, batch_of, rows_of
from peregrine.types import OpId

Lines = dict[tuple[str, str, str], list[tuple[int, bytes]]]  # (sink, key, source) -> (seq, payload) in order
States = dict[tuple[str, str], Any]  # (operator, key) -> value and books


@dataclass(frozen=True, slots=True)
class Proof:
    rows_in: int
    rows_out: int
    lost: int
    repeated: int
    out_of_order: int  # outputs behind which an earlier one of the same key and source comes
    states: int
    states_that_differ: tuple[str, ...]
    violations: tuple[str, ...] = ()  # what checkers that know more of a run have found

    @property
    def holds(self) -> bool:
        return not (self.lost or self.repeated or self.out_of_order or self.states_that_differ or self.violations)


def expected(
    specs: Mapping[OpId, OpSpec], operators: Mapping[OpId, Operator], sent: Mapping[OpId, Iterable[Row]]
) -> tuple[Lines, States]:
    """Results and final values for the rows that were sent to each operator."""
    inputs: dict[OpId, list[Row]] = {op: list(rows) for op, rows in sent.items()}
    lines: Lines = {}
    states: States = {}
    for op in in_order(specs):
        rows = inputs.get(op, [])
        if specs[op].sink:
            for row in rows:
                lines.setdefault((op, row.key, row.source), []).append((row.seq, row.payload))
            continue
        parts = by_group([(0, Rows(op, batch_of(rows)))], {op: specs[op].groups}) if rows else {}
        for entries in parts.values():
            emissions, after = apply(operators[op], b"", entries)
            states.update({(op, key): content[0] for key, content in state.canonical(after).items()})
            for emission in emissions:
                assert isinstance(emission.item, Rows), "only rows went in"
                inputs.setdefault(emission.item.op, []).extend(rows_of(emission.item.batch))
    return lines, states


def values(blobs: Iterable[tuple[OpId, bytes]]) -> States:
    """The values of all keys in the states of hosts, as `expected` gives them. A key at two places shows."""
    found: States = {}
    for op, blob in blobs:
        for key, content in state.canonical(blob).items():
            found[op, key] = content[0] if (op, key) not in found else ["at two places", found[op, key], content[0]]
    return found


def prove(
    rows_in: int, got: Lines, should: Lines, states: Mapping[Any, Any], should_states: Mapping[Any, Any]
) -> Proof:
    lost = repeated = out_of_order = 0
    for line in got.keys() | should.keys():
        mine, theirs = Counter(got.get(line, [])), Counter(should.get(line, []))
        lost += (theirs - mine).total()
        repeated += (mine - theirs).total()
        out_of_order += sum(one[0] > other[0] for one, other in pairwise(got.get(line, [])))
    keys = states.keys() | should_states.keys()
    differ = [" ".join(key) for key in keys if states.get(key) != should_states.get(key)]
    rows_out = sum(map(len, got.values()))
    return Proof(rows_in, rows_out, lost, repeated, out_of_order, len(should_states), tuple(sorted(differ)))
