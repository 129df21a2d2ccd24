"""What is stored and sent has a name of its own, so that any class may be renamed or moved."""

import ast
import importlib
import inspect
import pkgutil
import sys
from collections import Counter
from types import ModuleType, UnionType
from typing import Any, get_args

import pytest

import peregrine.core
import peregrine.plan.redeploy
from peregrine.core import journal, messages, redeploying, snapshot, stored_names, wire
from peregrine.core.messages import Tick
from peregrine.core.rows import Entry, Item
from peregrine.errors import ProtocolError
from peregrine.net import protocol
from peregrine.plan import manager_books
from peregrine.plan.redeploy import told
from peregrine.plan.redeploy.events import TopologyEvent

# Modules of codecs, of what runs in hosts, devices and observers, and classes that no machine keeps.
NOT_KEPT = {
    *(
        "core.big_map",
        "core.chain",
        "core.chunks",
        "core.gather",
        "core.large",
        "core.link",
        "core.log",
        "core.pages",
        "core.pressure",
    ),
    *(
        "core.device_record",
        "core.router_logs",
        "core.shard",
        "core.slices",
        "core.state",
        "core.watermarks",
        "core.wire",
        "core.snapshot",
    ),
    *("plan.redeploy.detector", "plan.redeploy.stages", "plan.redeploy.sharing"),
    *("core.host.Outs", "core.host.Part", "core.host._Work", "core.operator.Out", "core.operator.Timing"),
    *("core.mechanisms.program.Step", "core.topology.Direction"),
    "plan.redeploy.delta.RunningFragment",
    *("plan.redeploy.placing.Placing", "plan.redeploy.placing._Need"),
    *("plan.redeploy.queue.Batch", "plan.redeploy.queue.Verdict"),
}


def members(of: Any) -> set[type[Any]]:
    return set().union(*map(members, get_args(of))) if isinstance(of, UnionType) else {of}


def test_no_name_stands_for_two_things_and_nothing_has_two_names() -> None:
    tree = ast.parse(inspect.getsource(stored_names))
    (table,) = [node.value for node in ast.walk(tree) if isinstance(node, ast.AnnAssign) and node.value is not None][:1]
    assert isinstance(table, ast.Dict)
    written = Counter(ast.literal_eval(key) for key in table.keys if key is not None)  # a dict would keep the last one
    assert len(written) == len(stored_names.STORED) and set(written.values()) == {1}
    assert set(Counter(stored_names.STORED.values()).values()) == {1}


@pytest.mark.parametrize("name", stored_names.STORED)
def test_a_name_leads_to_what_it_names(name: str) -> None:
    thing = stored_names.named(name)
    assert f"{thing.__module__}.{thing.__qualname__}" == stored_names.STORED[name], "the table names another place"
    assert stored_names.name_of(thing) == name


def test_every_class_of_the_machines_has_a_name() -> None:
    """One that had none would be noticed when a router writes its first snapshot with it, in production."""
    missing = []
    for package in (peregrine.core, peregrine.plan.redeploy):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            module = found.name.removeprefix("peregrine.")
            if module in NOT_KEPT or module.endswith("__main__"):
                continue
            for kind in vars(importlib.import_module(found.name)).values():
                if not isinstance(kind, type) or kind.__module__ != found.name or getattr(kind, "_is_protocol", False):
                    continue
                where = f"{kind.__module__}.{kind.__qualname__}"
                if where not in stored_names.STORED.values() and where.removeprefix("peregrine.") not in NOT_KEPT:
                    missing.append(where)
    assert missing == [], "give them names in core/stored_names.py, or say in NOT_KEPT that no machine keeps them"


def test_every_member_of_what_is_stored_and_sent_can_be_written_and_read() -> None:
    in_parts = {messages.FromSource, messages.FromLink, messages.HandedBack, messages.FromHost, messages.FromGroups}
    in_parts |= {messages.WarmUp, messages.Together}
    assert set(journal._PLAIN.values()) == members(messages.Event) - in_parts
    assert set(manager_books._KINDS.values()) == members(manager_books.Recorded) - {redeploying.TopologyChanged}
    assert set(told._EVENTS) == {stored_names.name_of(kind) for kind in members(TopologyEvent)}
    assert set(protocol._NEWS.values()) == members(protocol.News)
    whole = {wire.Rows, wire.Returned, wire.Fenced}  # with a form of their own
    assert set(wire._KINDS.values()) == (members(Item) | members(Entry)) - whole


def test_a_class_that_is_renamed_and_moved_is_read_under_its_old_name(monkeypatch: pytest.MonkeyPatch) -> None:
    kept_journal, kept_snapshot = journal.encode(Tick(7)), snapshot.encode({"at": Tick(8)})
    moved = ModuleType("elsewhere")
    moved.Beat = type("Beat", (), {"__module__": "elsewhere", "__slots__": ("now_ms",), "__setstate__": _set})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "elsewhere", moved)
    monkeypatch.setitem(stored_names.STORED, "tick", "elsewhere.Beat")  # type: ignore[misc]
    monkeypatch.setattr(stored_names, "_known", {})
    found = snapshot.decode(kept_snapshot)["at"]
    assert type(found) is moved.Beat and found.now_ms == 8
    assert journal.decode(kept_journal) == Tick(7)


def _set(self: Any, state: list[Any]) -> None:
    (self.now_ms,) = state


def test_what_has_no_name_is_refused() -> None:
    with pytest.raises(ProtocolError, match="nothing is stored under the name 'FromSource'"):
        stored_names.named("FromSource")
    with pytest.raises(ProtocolError, match=r"core/stored_names\.py"):
        stored_names.name_of(wire.RowsHeader)
