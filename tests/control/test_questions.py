"""What the manager answers stays as it was: no answer is, or has in it, a part of the machine that changes."""

import gc
import inspect
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from managed_driver import AT_CLOUD, AT_EDGE1, CLOUD, EDGE1, EDGE2, KEYS, LINK, OP, Managed, managed, plan
from peregrine.control import questions
from peregrine.core.manager import Manager
from peregrine.core.messages import Attached
from peregrine.core.rehoming import Rehoming
from peregrine.plan.redeploy.events import SiteMoved
from peregrine.types import MigrationId, SourceId

CAR = SourceId("car0")
CHANGEABLE = (dict, list, set)
CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
ASKED: dict[str, tuple[Any, ...]] = {
    "owner": (OP, "car0"),
    "owners": (OP, ["car0", "car9"]),
    "where": (OP, KEYS),
    "instances": (OP,),
    "all_instances": (),
    "places": ([OP],),
    "idle": (),
    "running": (),
    "knows": ("p",),
    "plan": ("p",),
    "progress": ("p",),
    "migration": (MigrationId("p.0.0"),),
    "attached": (CAR,),
    "next_nth": (CAR,),
    "topology": (),
    "sites": (),
    "hosts": (CLOUD,),
    "changing": (),
    "introductions": (),  # of the rehoming that is open
    "fragments": (),
}


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Managed]:
    """Keys are moving and a site changes its parent: there is something to answer to every question."""
    with managed(tmp_path) as made:
        for router in made.clients.values():
            router.deaf = True
        made.driver.tell(SiteMoved(EDGE2, CLOUD, EDGE1, LINK, 1))
        made.driver.submit(plan("p", (KEYS, AT_CLOUD, AT_EDGE1)))
        made.driver._step(Attached(EDGE1, CAR, 5, 0))
        yield made


def rehoming(manager: Manager) -> Rehoming:
    assert manager.redeploying is not None
    (command,) = manager.redeploying.rehomer.commands()
    return command.rehoming


def ask(up: Managed, name: str) -> Any:
    args = (up.driver.ask(rehoming),) if name == "introductions" else ASKED[name]
    question: Callable[..., Any] = getattr(questions, name)
    return up.driver.ask(question, *args)


def changeable_parts(machine: object) -> dict[int, object]:
    """Everything that the machine is made of and that could change."""
    seen: dict[int, object] = {}
    queue: list[object] = [machine]
    while queue:
        each = queue.pop()
        if id(each) in seen or isinstance(each, CODE):
            continue
        seen[id(each)] = each
        queue += gc.get_referents(each)
    return {at: each for at, each in seen.items() if not _frozen(each) and not isinstance(each, tuple | frozenset)}


def _frozen(value: object) -> bool:
    dataclass = getattr(type(value), "__dataclass_params__", None)
    return (dataclass is not None and dataclass.frozen) or isinstance(value, str | int | float | bool | None)


def live(answer: object, parts: dict[int, object]) -> list[object]:
    """What in an answer may change when the machine goes on."""
    if _frozen(answer):
        return []
    if id(answer) in parts or not isinstance(answer, (tuple, frozenset, *CHANGEABLE)):
        return [answer]
    inside = [*answer.keys(), *answer.values()] if isinstance(answer, dict) else list(answer)
    return [found for each in inside for found in live(each, parts)]


def test_every_question_is_asked_here() -> None:
    functions = inspect.getmembers(questions, inspect.isfunction)
    assert {name for name, each in functions if each.__module__ == questions.__name__} == ASKED.keys()


@pytest.mark.parametrize("name", ASKED)
def test_an_answer_is_no_part_of_the_machine(up: Managed, name: str) -> None:
    answer = ask(up, name)
    assert answer is not None
    assert live(answer, changeable_parts(up.machine)) == []


@pytest.mark.parametrize(
    "question",
    [
        lambda manager: manager.coordinator.placement,
        lambda manager: manager.coordinator.placement.instances(OP),
        lambda manager: manager.coordinator.running,
        lambda manager: (1, manager.coordinator.running["p"]),
        lambda manager: {"p": manager.coordinator.running["p"].open},
        lambda manager: (each for each in manager.coordinator.running),
    ],
)
def test_an_answer_that_is_a_part_of_the_machine_is_caught(up: Managed, question: Callable[[Manager], Any]) -> None:
    assert live(up.driver.ask(question), changeable_parts(up.machine)) != []


def test_questions_are_answered_as_it_is(up: Managed) -> None:
    moving = ask(up, "migration")
    assert (moving.source, moving.target, moving.keys) == (AT_CLOUD, AT_EDGE1, KEYS)
    assert ask(up, "owners") == {"car0": AT_CLOUD, "car9": AT_CLOUD}
    assert ask(up, "where") == ((AT_CLOUD, KEYS),)
    assert ask(up, "places") == {AT_CLOUD, AT_EDGE1} and ask(up, "progress") == (0, 0)
    assert ask(up, "running") == ("p",) and not ask(up, "idle") and ask(up, "changing")
    for router in up.clients.values():
        router.deaf = False
    up.driver.wait("p", 20)
    up.driver.wait_changed(20)
    assert ask(up, "owners") == {"car0": AT_EDGE1, "car9": AT_CLOUD}
    assert ask(up, "instances").keys() == {AT_CLOUD, AT_EDGE1} == ask(up, "all_instances")[OP].keys()
    assert ask(up, "topology").parent(EDGE2) == EDGE1
    assert ask(up, "plan") is ask(up, "progress") is ask(up, "migration") is None and ask(up, "knows")
    assert ask(up, "idle") and not ask(up, "changing")
