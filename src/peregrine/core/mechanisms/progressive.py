"""Partial state movement (survey IV-E; Megaphone): the pause of one chunk of K after the other, so each is short.

The plan cuts K into chunks (`core/reconfigure.py`), because its strategy says so (`chunks:4`) or its configuration
(`chunks`). Each chunk runs this program by itself, which is that of `pause`: without chunks the two are the same.
"""

from dataclasses import replace

from peregrine.core.mechanisms.pause import PAUSE
from peregrine.core.mechanisms.program import Movement

PROGRESSIVE = replace(
    PAUSE,
    name="progressive",
    survey="single-track, moving state, partial (Megaphone)",
    movement=Movement.PARTIAL,
    chunked=True,
    summary="As pause, chunk after chunk of K: longer in all, but no key waits for more than its own chunk. "
    "Without chunks it is pause.",
)
