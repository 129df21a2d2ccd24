"""What several applications share is decided when their deployment begins, and kept when it goes on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from peregrine import App, Avg, Max
from peregrine.control.naming import Names
from peregrine.control.sharing import names_of, note
from peregrine.errors import ConfigurationError, UnknownName

SHARED = {"b/average": "a/average"}


def app_of(name: str, aggregate: Any = Avg) -> App:
    app = App(name, groups=4)
    speeds = app.source("speeds", "vehicle string, speed double", senders=["gate"])
    speeds.key_by("vehicle").aggregate("average", average=aggregate("speed")).to("out")
    return app


def both() -> list[App]:
    return [app_of("b"), app_of("a")]


def begin(directory: Path, apps: Sequence[App], share: bool = True, begun: bool = True) -> Names:
    """What `run` does, without anything that runs."""
    names = names_of(apps, {}, share, directory)
    note(names.twins, directory)
    if begun:
        (directory / "manager").mkdir(exist_ok=True)
    return names


def test_equal_operators_run_once_unless_it_is_not_wanted() -> None:
    assert names_of(both(), {}, True).twins == SHARED
    assert names_of(both(), {}, False).twins == {}
    assert names_of(both()[:1], {}, True).twins == {}


@pytest.mark.parametrize(
    ("at", "shared"),
    [
        ({"average": {"edge": None}}, True),
        ({"a/average": {"edge": ["car1"]}, "b/average": {"edge": ["car1"]}}, True),
        ({"a/average": {"edge": ["car1"]}, "b/average": {"edge": ["car2"]}}, False),
        ({"a/average": {"edge": None}, "b/average": {"region": None}}, False),
        ({"a/average": {"edge": None}}, False),
    ],
)
def test_operators_are_shared_if_they_begin_at_the_same_places(at: Any, shared: bool) -> None:
    names = names_of(both(), at, True)
    assert bool(names.twins) == shared
    assert len(names.beginnings(at)) == (1 if shared else len(at))


def test_a_place_for_one_of_two_operators_must_say_of_which() -> None:
    at: Any = {"average": {"edge": None}}
    with pytest.raises(UnknownName, match="which application"):
        names_of([app_of("a"), app_of("b", Max)], at, True).beginnings(at)


def test_two_applications_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="name of its own"):
        names_of([app_of("a"), app_of("a")], {}, True)


@pytest.mark.parametrize("share", [True, False])
def test_a_deployment_goes_on_as_it_began(tmp_path: Path, share: bool) -> None:
    began = begin(tmp_path, both(), share)
    assert begin(tmp_path, both(), not share).twins == began.twins == (SHARED if share else {})


def test_what_began_before_anything_was_shared_goes_on_without(tmp_path: Path) -> None:
    (tmp_path / "manager").mkdir()
    assert begin(tmp_path, both()).twins == {}


def test_a_beginning_that_failed_decides_nothing(tmp_path: Path) -> None:
    begin(tmp_path, both(), share=False, begun=False)
    assert begin(tmp_path, both()).twins == SHARED


@pytest.mark.parametrize("apps", [[app_of("a"), app_of("b", Max)], [app_of("b")], [app_of("a")]])
def test_what_was_one_operator_and_is_not_any_more_is_refused(tmp_path: Path, apps: list[App]) -> None:
    begin(tmp_path, both())
    with pytest.raises(ConfigurationError, match="b/average by a/average"):
        begin(tmp_path, apps)


def test_another_application_may_join_and_shares_nothing(tmp_path: Path) -> None:
    begin(tmp_path, both())
    assert begin(tmp_path, [*both(), app_of("Z")]).twins == SHARED
