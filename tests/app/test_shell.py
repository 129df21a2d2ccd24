"""The shell remembers things of keys only to be faster: what it tells a logic is the same without."""

import pickle
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from peregrine import App, Avg
from peregrine.app import shell as shells
from peregrine.app.compile import compile_app
from peregrine.app.logic import NEVER, Emit, Key, Moment, Timeless
from peregrine.app.schema import Keying, schema_of
from peregrine.app.shell import Shell, Target
from peregrine.app.watermark import Watermark
from peregrine.core.rows import UNCHAINED, Row
from peregrine.types import OpId, SourceId

SCHEMA = schema_of("n bigint")
SOURCES = ("a", "b", "c")


class Telling(Timeless):
    """Tells the watermark under which it is called."""

    event_time = True

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        return None, [Emit((at.watermark_ms,), at.time_ms)]


def telling(watermark: Watermark) -> Shell:
    target = Target(OpId("next"), None)
    return Shell(
        OpId("op"), Telling(), Keying(SCHEMA, ["n"]), (("", SCHEMA),), ((SCHEMA, (target,)),), False, watermark
    )


def row(key: str, source: str, time_ms: int, seq: int = 0) -> Row:
    return Row(key, SourceId(source), seq, UNCHAINED, time_ms, 0, b'{"n":1}')


@given(
    st.lists(st.tuples(st.sampled_from("12"), st.sampled_from(SOURCES), st.integers(0, 20), st.booleans())),
    st.sampled_from([None, SOURCES]),
    st.integers(0, 3),
)
def test_watermarks_are_those_of_the_slowest_source_after_any_rows(
    arrivals: list[tuple[str, str, int, bool]], sources: tuple[SourceId, ...] | None, delay_ms: int
) -> None:
    shell = telling(Watermark(sources, delay_ms))
    marks: dict[str, dict[str, int]] = {}
    values: dict[str, Any] = {}
    for key, source, time_ms, anew in arrivals:
        if anew:  # the key has moved away, and another of this name comes
            marks.pop(key, None)
            values.pop(key, None)
        mine = marks.setdefault(key, {})
        mine[source] = max(time_ms, mine.get(source, NEVER))
        before = values[key][2] if key in values else NEVER
        values[key], (out,) = shell.on_row(key, values.get(key), row(key, source, time_ms), mine)
        assert SCHEMA.decode(out.payload).n == max(before, shell.watermark.of(mine))


def test_a_shell_that_was_used_travels_without_what_it_remembers() -> None:
    shell = telling(Watermark())
    value, _ = shell.on_row("1", None, row("1", "a", 5), {"a": 5})
    assert "1" in shell._known
    moved = pickle.loads(pickle.dumps(shell))
    assert not moved._known
    _, (out,) = moved.on_row("1", value, row("1", "a", 7, 1), {"a": 7})
    assert (out.source, out.seq, SCHEMA.decode(out.payload).n) == ("op>1", 1, 7)


def test_a_shell_remembers_no_more_keys_than_it_may(monkeypatch: Any) -> None:
    monkeypatch.setattr(shells, "_MOST_KNOWN", 3)
    app = App("tm", 4)
    speeds = app.source("speeds", "vehicle string, speed double")
    speeds.key_by("vehicle").aggregate("average", average=Avg("speed")).to("averages")
    (shell,) = compile_app(app).operators.values()
    assert isinstance(shell, Shell)
    for nth in range(10):
        key = f"car{nth}"
        _, (out,) = shell.on_row(key, None, Row(key, SourceId("s"), nth, UNCHAINED, 0, 0, b'{"speed":1.5}'), {})
        assert (out.key, out.source) == (key, f"tm/average>{key}")
        assert len(shell._known) <= 3
