"""Applications as users write them, drawn for the simulator: all kinds of timed windows, alone, in two stages, joined.

What comes out depends on event times alone, however rows of several senders are mixed, so that runs can be compared.
Which rows are late would depend on more than that, unless one sender feeds one operator: only then there are late ones.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from peregrine.app.aggregates import Count, Max, Sum
from peregrine.app.compile import Compiled, Ingress, compile_app
from peregrine.app.model import App
from peregrine.app.windows import Session, Sliding, Tumbling, Window
from peregrine.core.source import Reading

SOURCE = "readings"
LATE_BY_MS = 250


@dataclass(frozen=True)
class Written:
    compiled: Compiled
    delay_ms: int
    late: bool  # some rows come behind the watermark

    @property
    def ingress(self) -> Ingress:
        return self.compiled.sources[SOURCE]


def draw_written(rng: random.Random, name: str, senders: Sequence[str], groups: int) -> Written:
    app = App(name, groups)
    delay_ms = rng.choice((0, 0, 20))
    shape = rng.choice(("alone", "alone", "stages", "join"))
    schema = "car string, area string, amount bigint, at_ms bigint"
    cars = app.source(SOURCE, schema, event_time="at_ms", delay=delay_ms, senders=senders).key_by("car")
    late = shape == "alone" and len(senders) == 1
    match shape:
        case "alone":
            lateness_ms = rng.choice((0, 60)) if late else 0
            told = cars.window(_window(rng), lateness_ms).aggregate("count", rows=Count(), total=Sum("amount"))
            told.to("results")
            if late:
                told.side("late").to("late")
        case "stages":
            first = cars.window(_window(rng)).aggregate("count", area=Max("area"), rows=Count(), total=Sum("amount"))
            plain = first.map(
                "plain", lambda each: (each.area, each.rows, each.total), "area string, n bigint, m bigint"
            )
            second = plain.key_by("area").window(Tumbling(rng.choice((100, 200))))
            second.aggregate("area", windows=Count(), rows=Sum("n"), total=Sum("m")).to("results")
        case "join":
            window = Sliding(rng.choice((80, 120)), 40)
            left = cars.window(window).aggregate("count", rows=Count())
            right = cars.window(window).aggregate("total", total=Sum("amount"))
            pairs = left.key_by("car").window_join(
                "join", right.key_by("car"), Tumbling(40), _both, "n bigint, m bigint"
            )
            pairs.to("results")
    return Written(compile_app(app), delay_ms, late)


def readings(rng: random.Random, written: Written, sender: str, car: str, area: str, at_ms: int) -> Iterator[Reading]:
    """One record, for every operator that takes it."""
    time_ms = at_ms - rng.randint(0, written.delay_ms)
    if written.late and rng.random() < 0.15:
        time_ms -= written.delay_ms + rng.randint(1, LATE_BY_MS)
    record = {"car": car, "area": area, "amount": rng.randrange(1_000_000), "at_ms": time_ms}
    yield from written.ingress.readings(record, sender, at_ms)


def _window(rng: random.Random) -> Window:
    return rng.choice((Tumbling(50), Tumbling(200), Sliding(120, 40), Sliding(100, 30), Session(25), Session(90)))


def _both(left: object, right: object) -> tuple[int, int]:
    return left.rows, right.total  # type: ignore[attr-defined]
