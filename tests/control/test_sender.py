"""Whom a device tells how far its time has come: by what its source says of the devices that there are."""

import pytest

from peregrine import App, Count, Tumbling
from peregrine.app.compile import compile_app
from peregrine.control.sender import Sender
from peregrine.core.rows import Clock
from peregrine.net.device import Device
from peregrine.types import SiteId, SourceId


def app(roaming: bool, senders: list[str] | None) -> App:
    made = App("app")
    cars = made.source(
        "cars", "car string, at_ms bigint", key="car", event_time="at_ms", roaming=roaming, senders=senders
    )
    cars.key_by("car").window(Tumbling(100)).aggregate("count", count=Count()).to("counts")
    return made


@pytest.mark.parametrize(
    ("roaming", "senders", "beats"),
    [(False, None, 1), (False, ["car1"], 1), (True, ["car1"], 1), (True, None, 0)],
)
def test_a_car_tells_its_time_unless_it_roams_and_nobody_waits_for_it_by_name(
    roaming: bool, senders: list[str] | None, beats: int
) -> None:
    sources = {name: (ingress,) for name, ingress in compile_app(app(roaming, senders)).sources.items()}
    with Device(SourceId("car1"), {}, SiteId("edge"), "token", roaming=roaming) as device:
        sender = Sender("car1", device, sources)
        sender.send("cars", car="car1", at_ms=10)
        rows = device.taken
        sender.beat()
        assert device.taken - rows == beats
        told = [what for _, _, what in device._source.kept if isinstance(what, Clock)]
        assert [(clock.time_ms, bool(clock.behind)) for clock in told] == [(10, roaming)] * beats
