"""What the documents show is run."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(path.stem for path in (ROOT / "src/peregrine/app").glob("[a-z]*.py"))


def test_every_block_of_the_guide_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/programming.md").read_text(), re.DOTALL)
    assert len(blocks) >= 2
    scope: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/programming.md", "exec"), scope)


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_in_docstrings(module: str) -> None:
    assert doctest.testmod(importlib.import_module(f"peregrine.app.{module}")).failed == 0
