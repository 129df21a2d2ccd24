"""The layers hold: who imports whom is read from the source, so that nothing has to run to break a rule."""

import ast
from pathlib import Path

import pytest

import peregrine

SOURCE = Path(peregrine.__file__).parent
# What a pure layer must not touch: clocks, randomness, the world outside.
IMPURE = {
    *("time", "datetime", "random", "secrets", "uuid", "numpy.random"),
    *("os", "socket", "subprocess", "multiprocessing", "threading", "asyncio", "logging", "pyspark"),
}
# Which parts of Peregrine a pure layer may import.
PURE = {
    "core": {"types", "errors", "core"},
    "plan": {"types", "errors", "config", "core", "plan"},
}


def imports(source: str, module: str) -> set[str]:
    """Every dotted name that a module imports, relative ones resolved, wherever the import stands."""
    found = set()
    package = module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            found |= {f"{origin}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in ("np", "numpy") and node.attr == "random":
                found.add("numpy.random")
    return found


def breaches(source: str, module: str) -> list[str]:
    """The imports that the layer of a module (`peregrine.<layer>...`) does not allow."""
    layer = module.split(".")[1]
    broken = []
    for name in sorted(imports(source, module)):
        parts = name.split(".")
        if parts[0] == "pyspark" and layer != "spark":
            broken.append(f"{module} imports {name}: only spark/ knows pyspark")
        if layer not in PURE:
            continue
        if any(name == impure or name.startswith(f"{impure}.") for impure in IMPURE):
            broken.append(f"{module} imports {name}: {layer}/ is pure")
        if parts[0] == "peregrine" and (len(parts) < 2 or parts[1] not in PURE[layer]):
            broken.append(f"{module} imports {name}: not below {layer}/")
    return broken


def modules() -> dict[str, str]:
    """Module name -> source; a package's own name ends in __init__, so that relative imports resolve alike."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        found[".".join(("peregrine", *path.relative_to(SOURCE).with_suffix("").parts))] = path.read_text("utf-8")
    return found


def test_every_module_keeps_to_its_layer() -> None:
    found = modules()
    assert "peregrine.core.topology" in found
    assert [breach for module, source in found.items() for breach in breaches(source, module)] == []


@pytest.mark.parametrize("impure", sorted(IMPURE))
@pytest.mark.parametrize("layer", sorted(PURE))
def test_a_pure_layer_that_touches_the_world_is_caught(layer: str, impure: str) -> None:
    head, _, tail = impure.rpartition(".")
    module = f"peregrine.{layer}.sub.some"
    assert breaches(f"import {impure}", module)
    assert breaches(f"def f():\n    from {impure} import x", module)
    assert breaches(f"import {impure}.deeper as d", module)
    if head:
        assert breaches(f"from {head} import {tail}", module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("peregrine.core.router", "from peregrine.sim import world"),
        ("peregrine.core.router", "import peregrine.cli"),
        ("peregrine.core.router", "from peregrine import bench"),
        ("peregrine.core.router", "from peregrine.config import Config"),
        ("peregrine.core.router", "from peregrine.plan.cost import price"),
        ("peregrine.core.router", "from ..sim import world"),
        ("peregrine.core.router", "from .. import cli"),
        ("peregrine.core.__init__", "from ..config import Config"),
        ("peregrine.core.router", "import numpy as np\nnp.random.default_rng()"),
        ("peregrine.plan.cost", "from peregrine.control import manager"),
        ("peregrine.plan.cost", "import peregrine"),
        ("peregrine.cli", "import pyspark.sql"),
        ("peregrine.control.agent", "def f():\n    from pyspark.sql import SparkSession"),
    ],
)
def test_an_import_from_a_layer_above_is_caught(module: str, source: str) -> None:
    assert breaches(source, module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "peregrine.core.router",
            "from peregrine.core.rows import Row\nfrom .rules import Rules\nfrom ..types import OpId",
        ),
        ("peregrine.core.router", "import numpy as np\nimport pyarrow as pa\nimport random_name, timeit"),
        ("peregrine.plan.cost", "from peregrine.config import Config\nfrom peregrine.core import topology"),
        ("peregrine.spark.source", "from pyspark.sql import SparkSession\nimport time"),
        ("peregrine.cli", "import os, time\nfrom peregrine.sim import world"),
    ],
)
def test_an_import_that_a_layer_allows_is_not_caught(module: str, source: str) -> None:
    assert breaches(source, module) == []
