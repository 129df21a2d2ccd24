"""Nobody but its driver has the manager's machine: who reaches for it is read from the source.

The driver asks questions of it under its lock; they stand in one module, so that one sees what they answer with.
"""

import ast
from pathlib import Path

import pytest

import peregrine

SOURCE = Path(peregrine.__file__).parent
HAVE_IT = {"peregrine.control.driver", "peregrine.control.durable_manager", "peregrine.control.questions"}
MACHINES = {"core", "plan", "sim"}  # what the machine is made of, and a world in which only one thread is
PARTS = {"machine", "coordinator", "placement", "mobility", "redeploying", "rehomer", "attachments"}
OTHERS = {"platform.machine", "settings.mobility"}  # are called the same
ROUTERS = {"self._stepper.machine", "self.stepper.machine", "self.machine"}  # in net/: theirs, behind `Stepper.ask`


def breaches(source: str, module: str) -> list[str]:
    """The places in a module that reach into the manager's machine, or behind its driver."""
    layer = module.split(".")[1]
    if module in HAVE_IT or layer in MACHINES:
        return []
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Attribute):
            continue
        text = ast.unparse(node)
        behind = ast.unparse(node.value).endswith("driver") and (node.attr.startswith("_") or node.attr == "manager")
        part = node.attr in PARTS and text not in OTHERS and not (layer == "net" and text in ROUTERS)
        if part or behind:
            found.append(f"{module}:{node.lineno}: {text}: ask the driver (control/questions.py)")
    return found


def modules() -> dict[str, str]:
    return {
        ".".join(("peregrine", *path.relative_to(SOURCE).with_suffix("").parts)): path.read_text("utf-8")
        for path in sorted(SOURCE.rglob("*.py"))
    }


def test_nobody_reaches_into_the_machine_of_the_driver() -> None:
    found = modules()
    assert found.keys() >= HAVE_IT
    assert [breach for module, source in found.items() for breach in breaches(source, module)] == []


def test_the_driver_hands_its_machine_to_questions_alone_and_under_its_lock() -> None:
    (driver,) = (
        node
        for node in ast.parse(modules()["peregrine.control.driver"]).body
        if isinstance(node, ast.ClassDef) and node.name == "ManagerDriver"
    )
    uses = [ast.unparse(node) for node in ast.walk(driver) if isinstance(node, ast.Attribute) and node.attr in PARTS]
    assert uses == ["self._durable.machine"]
    (ask,) = (node for node in driver.body if isinstance(node, ast.FunctionDef) and node.name == "ask")
    (locked,) = (node for node in ask.body if isinstance(node, ast.With))
    assert ast.unparse(locked.items[0]) == "self._changed" and "self._durable.machine" in ast.unparse(locked)


@pytest.mark.parametrize(
    "source",
    [
        "deployment.driver.manager.coordinator.placement.instances(op)",
        "running = deployment.driver.manager.idle",
        "topology = durable.machine",
        "x = lambda manager: manager.coordinator.running",
        "up.driver._durable",
        "with driver._changed: pass",
        "def f(manager):\n    return manager.attachments.at(source)",
    ],
)
@pytest.mark.parametrize("module", ["peregrine.control.running", "peregrine.bench.spark.soak", "peregrine.net.server"])
def test_who_reaches_into_the_machine_is_caught(module: str, source: str) -> None:
    assert breaches(source, module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("peregrine.control.running", "deployment.driver.ask(questions.owner, op, key)"),
        ("peregrine.control.beginning", "settings.mobility"),
        ("peregrine.net.links", "self._stepper.machine"),
        ("peregrine.core.manager", "self.coordinator.placement"),
    ],
)
def test_who_asks_is_not_caught(module: str, source: str) -> None:
    assert breaches(source, module) == []
