"""The default strategy: decides by five inputs (Spacker IV-C).

    order       hot-first if rows are many and skewed: the keys that keep the place busy leave it first.
                Otherwise random: no order is better than another, and none costs anything.
    chunks      all at once if what has to travel (state of a key x keys, without what replicas save) takes no longer
                than the round that each chunk costs anyway, or if rows do not wait for it.
                Otherwise so many that each takes about a round: fewer make the spike higher, more make the migration
                longer, for nothing.
    replicas    of the keys that are not touched (Spacker: of half of them), if much would have to travel and few keys
                are touched: what is fresh need not travel, and keeping it costs nothing.
                None otherwise: what is touched all the time would be shipped all the time. A plan makes no replicas, it
                uses those that `replicate` has kept until then.

What is much is measured (plan/calibration.py). A decision comes with its reasons, for whoever reads the preview.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from peregrine.plan.calibration import DEFAULTS, Calibration
from peregrine.plan.chunking import USUAL_PACE, Chunks, NChunks, Pace, all_at_once
from peregrine.plan.metrics import Inputs, Metrics, Unit
from peregrine.plan.orders import RANDOM, hot_first
from peregrine.plan.replicas import Ratio, Replicas, no_replicas
from peregrine.plan.strategy import Chunk, Fixed, Prioritise, Replicate, Strategy, built_in, checked, is_path, loaded


@dataclass(frozen=True, slots=True)
class Decision:
    functions: Fixed
    reasons: tuple[str, ...]


def decide(inputs: Inputs, much: Calibration, rows_wait: bool = True) -> Decision:
    """`rows_wait`: do rows of a key wait while its state travels? With `live` they do not."""
    order, why_order = _order(inputs, much)
    chunk, why_chunk = _progressiveness(inputs, much, rows_wait)
    replicate, why_replicate = _replication(inputs, much)
    return Decision(Fixed(order, chunk, replicate), (why_order, why_chunk, why_replicate))


def best_count(rounds: float, much: Calibration) -> int:
    """Of chunks, where a chunk takes a round and its share of `rounds`.

    With n chunks the spike is 1 + rounds / n, of which 1 is the least possible; the completion n + rounds, of which
    1 + rounds is. The weighted sum of the two, each relative to its least, is smallest at this n.
    """
    goal = much.goal
    if not goal.completion:
        return max(math.ceil(rounds), 1)
    return max(round(math.sqrt(goal.spike / goal.completion * rounds * (1 + rounds))), 1)


def _order(inputs: Inputs, much: Calibration) -> tuple[Prioritise, str]:
    known = (
        f"{inputs.rows_per_s:,.0f} rows/s (many: {much.high_rows_per_s:,.0f}), "
        f"skew {inputs.skew:.2f} (much: {much.high_skew:.2f})"
    )
    if inputs.rows_per_s >= much.high_rows_per_s and inputs.skew >= much.high_skew:
        return hot_first, f"hot-first: {known}"
    return RANDOM, f"random: {known}"


def _progressiveness(inputs: Inputs, much: Calibration, rows_wait: bool) -> tuple[Chunk, str]:
    if not rows_wait:
        return all_at_once, "all at once: no row waits for state that travels"
    rounds = much.rounds(inputs.carried_bytes, inputs.keys)
    known = (
        f"{inputs.carried_bytes:,.0f} bytes of {inputs.keys:,} keys have to travel, "
        f"{rounds:.1f} times what a round does anyway ({much.round_bytes:,.0f} bytes)"
    )
    count = min(best_count(rounds, much), max(inputs.keys, 1))
    return (NChunks(count), f"{count} chunks: {known}") if count > 1 else (all_at_once, f"all at once: {known}")


def _replication(inputs: Inputs, much: Calibration) -> tuple[Replicate, str]:
    rounds = much.rounds(inputs.key_bytes * inputs.keys, 0)
    known = (
        f"{inputs.key_bytes:,.0f} bytes a key, in all {rounds:.1f} rounds' worth (much: 1), "
        f"{inputs.access_ratio:.1%} of keys touched in a second (few: {much.low_access_ratio:.1%})"
    )
    if rounds > 1 and inputs.access_ratio < much.low_access_ratio:
        share = 1 - inputs.access_ratio
        return Ratio(share), f"replicas are worth their cost for {share:.0%} of the keys, the quietest: {known}"
    return no_replicas, f"replicas are not worth their cost: {known}"


@dataclass(frozen=True, slots=True)
class Adaptive:
    """A strategy that asks `decide` anew each time. Order and chunks see the same keys, so they agree."""

    much: Calibration = DEFAULTS
    rows_wait: bool = True

    def prioritise(self, keys: Sequence[Unit], metrics: Metrics, /) -> Sequence[Unit]:
        return self._of(keys, metrics).prioritise(keys, metrics)

    def chunk(self, order: Sequence[Unit], metrics: Metrics, /) -> Chunks:
        return self._of(order, metrics).chunk(order, metrics)

    def replicate(self, keyspace: Sequence[Unit], metrics: Metrics, /) -> Replicas:
        return self._of(keyspace, metrics).replicate(keyspace, metrics)

    def reasons(self, keys: Sequence[Unit], metrics: Metrics) -> tuple[str, ...]:
        """A plan uses the replicas that are there and makes none, so its reasons say which there are."""
        have = sum(key in metrics.replicated for key in keys)
        there = f"{have:,} of these {len(keys):,} have one at the target, and this plan makes none"
        order, chunk, replicate = self._decision(keys, metrics).reasons
        return order, chunk, f"{replicate}; {there}"

    def _of(self, keys: Sequence[Unit], metrics: Metrics) -> Fixed:
        return self._decision(keys, metrics).functions

    def _decision(self, keys: Sequence[Unit], metrics: Metrics) -> Decision:
        return decide(metrics.inputs(keys), self.much, self.rows_wait)


def strategy_of(
    given: str | Strategy, much: Calibration = DEFAULTS, pace: Pace = USUAL_PACE, rows_wait: bool = True
) -> Strategy:
    """As users give it: a name, names, an import path, or a strategy itself."""
    if not isinstance(given, str):
        return checked(given, type(given).__name__)
    if given == "adaptive":
        return Adaptive(much, rows_wait)
    return loaded(given) if is_path(given) else built_in(given, pace)
