"""What is stored and sent looks as it did when the version of the format was given."""

from pathlib import Path

import stored_shapes
from peregrine.core.format_version import FORMAT

KEPT = Path(__file__).parent.parent / "data" / f"format-{FORMAT}" / "shapes.txt"


def test_what_is_stored_and_sent_has_not_changed_its_shape() -> None:
    """If it has: docs/decisions/0027 says what to do."""
    kept, now = KEPT.read_text().splitlines(), stored_shapes.text().splitlines()
    assert [line for line in now if line not in kept] == [], "came, or is another"
    assert [line for line in kept if line not in now] == [], "went, or was another"
    assert kept == now
