"""Outputs of a batch on their way to the router: all groups of a place in one call.

Spark calls the function of a host for one group after the other and never says which is the last. So the source counts:
each slice carries in how many parts (groups) its place has work in this batch. With the last part, everything goes
to the router; Spark commits only after that. A repeated task begins again, with nothing of the one before.
"""

# pyspark is optional, also where types are checked.
# mypy: disable-error-code="import-not-found"

from collections.abc import Sequence

from pyspark import TaskContext

from peregrine.core.messages import FromHost
from peregrine.errors import PeregrineError, ProtocolError
from peregrine.net.client import RouterClient
from peregrine.spark.worker import patiently
from peregrine.types import PlaceId


class _Batch:
    """What one task has applied so far of one place."""

    def __init__(self) -> None:
        self.parts = 0
        self.outputs: list[FromHost] = []


_attempt = -1
_batches: dict[PlaceId, _Batch] = {}


def hand_over(
    router: RouterClient, place: PlaceId, of_parts: int, outputs: FromHost | None, patience_s: float
) -> None:
    """One part of a place has been applied; the last of `of_parts` sends what all of them had to say."""
    global _attempt
    context = TaskContext.get()
    attempt = int(context.taskAttemptId()) if context is not None else _attempt
    if attempt != _attempt:
        _attempt = attempt
        _batches.clear()
    batch = _batches.setdefault(place, _Batch())
    batch.parts += 1
    if outputs is not None:
        batch.outputs.append(outputs)
    if batch.parts > of_parts:
        raise ProtocolError(
            f"part {batch.parts} of {of_parts} of a batch of {place}", "this is a bug: keep the log and replay it"
        )
    if batch.parts == of_parts:
        del _batches[place]
        if batch.outputs:
            patiently(lambda: _offer(router, batch.outputs), patience_s)


def _offer(router: RouterClient, outputs: Sequence[FromHost]) -> None:
    for answer in router.offer_all(outputs):
        if isinstance(answer, PeregrineError):
            raise answer
