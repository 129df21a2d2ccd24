"""The default strategy: decides by five inputs (Spacker IV-C).

    order       hot-first if rows are many and skewed: the keys that keep the place busy leave it first.
                Otherwise random: no order is better than another, and none costs anything.
    chunks      all at once if a key has little state, or if all of it travels within a round of a migration anyway:
                chunks would only add rounds.
                Few keys with much state: many chunks, so that no key waits for much more than its own state.
                Many keys with much state: few chunks, because each of them costs a round.
    replicas    of half of the keys if a key has much state and few keys are touched: what is fresh need not travel.
                None otherwise: what is touched all the time would be shipped all the time.

What is much is measured (plan/calibration.py). A decision comes with its reasons, for whoever reads the preview.
"""

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


def decide(inputs: Inputs, much: Calibration) -> Decision:
    order, why_order = _order(inputs, much)
    chunk, why_chunk = _progressiveness(inputs, much)
    replicate, why_replicate = _replication(inputs, much)
    return Decision(Fixed(order, chunk, replicate), (why_order, why_chunk, why_replicate))


def _order(inputs: Inputs, much: Calibration) -> tuple[Prioritise, str]:
    known = (
        f"{inputs.rows_per_s:,.0f} rows/s (many: {much.high_rows_per_s:,.0f}), "
        f"skew {inputs.skew:.2f} (much: {much.high_skew:.2f})"
    )
    if inputs.rows_per_s >= much.high_rows_per_s and inputs.skew >= much.high_skew:
        return hot_first, f"hot-first: {known}"
    return RANDOM, f"random: {known}"


def _progressiveness(inputs: Inputs, much: Calibration) -> tuple[Chunk, str]:
    known = (
        f"{inputs.key_bytes:,.0f} bytes a key (much: {much.large_key_bytes:,.0f}), "
        f"{inputs.keys:,} keys (many: {much.many_keys:,.0f})"
    )
    total = inputs.key_bytes * inputs.keys
    if inputs.key_bytes < much.large_key_bytes:
        return all_at_once, f"all at once: {known}"
    if total < much.round_bytes:
        return all_at_once, f"all at once: {total:,.0f} bytes in all travel within a round ({much.round_bytes:,.0f})"
    count = much.more_chunks if inputs.keys < much.many_keys else much.less_chunks
    return NChunks(count), f"{count} chunks: {known}"


def _replication(inputs: Inputs, much: Calibration) -> tuple[Replicate, str]:
    known = (
        f"{inputs.key_bytes:,.0f} bytes a key (much: {much.large_key_bytes:,.0f}), "
        f"{inputs.access_ratio:.1%} of keys touched in a second (few: {much.low_access_ratio:.1%})"
    )
    if inputs.key_bytes >= much.large_key_bytes and inputs.access_ratio < much.low_access_ratio:
        return Ratio(much.replicated_share), f"replicas of {much.replicated_share:.0%} of the keys: {known}"
    return no_replicas, f"no replicas: {known}"


@dataclass(frozen=True, slots=True)
class Adaptive:
    """A strategy that asks `decide` anew each time. Order and chunks see the same keys, so they agree."""

    much: Calibration = DEFAULTS

    def prioritise(self, keys: Sequence[Unit], metrics: Metrics, /) -> Sequence[Unit]:
        return self._of(keys, metrics).prioritise(keys, metrics)

    def chunk(self, order: Sequence[Unit], metrics: Metrics, /) -> Chunks:
        return self._of(order, metrics).chunk(order, metrics)

    def replicate(self, keyspace: Sequence[Unit], metrics: Metrics, /) -> Replicas:
        return self._of(keyspace, metrics).replicate(keyspace, metrics)

    def reasons(self, keys: Sequence[Unit], metrics: Metrics) -> tuple[str, ...]:
        return decide(metrics.inputs(keys), self.much).reasons

    def _of(self, keys: Sequence[Unit], metrics: Metrics) -> Fixed:
        return decide(metrics.inputs(keys), self.much).functions


def strategy_of(given: str | Strategy, much: Calibration = DEFAULTS, pace: Pace = USUAL_PACE) -> Strategy:
    """As users give it: a name, names, an import path, or a strategy itself."""
    if not isinstance(given, str):
        return checked(given, type(given).__name__)
    if given == "adaptive":
        return Adaptive(much)
    return loaded(given) if is_path(given) else built_in(given, pace)
