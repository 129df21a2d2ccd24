"""What the documents show is run."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(path.stem for path in (ROOT / "src/peregrine/app").glob("[a-z]*.py"))


@pytest.mark.parametrize("page", ["docs/programming.md", "README.md"])
def test_every_block_of_a_page_runs(page: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert blocks
    scope: dict[str, object] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, page, "exec"), scope)


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_in_docstrings(module: str) -> None:
    assert doctest.testmod(importlib.import_module(f"peregrine.app.{module}")).failed == 0
