"""Back-pressure over a link: told again and again while there is any; that there is none, once."""

from typing import Any

import pytest

from peregrine.core.pressure import EVERY_S
from peregrine.net.link import _Pressure


class Heard:
    def __init__(self) -> None:
        self.told: list[bool] = []

    def tell_pressure(self, pressed: bool) -> None:
        self.told.append(pressed)


@pytest.mark.parametrize("latency_s", [0.0, 0.04])
def test_a_change_and_pressure_itself_are_told_and_quiet_is_not(latency_s: float) -> None:
    now: dict[str, Any] = {"pressed": False}
    heard: Any = Heard()
    pressure = _Pressure(lambda: now["pressed"], latency_s)
    at_s = 0.0

    def for_a_while(seconds: float) -> list[bool]:
        nonlocal at_s
        heard.told.clear()
        end_s = at_s + seconds
        while at_s < end_s:
            pressure.tell(heard, at_s)
            at_s += 0.01
        return list(heard.told)

    assert for_a_while(10 * EVERY_S) == [False]
    now["pressed"] = True
    told = for_a_while(10 * EVERY_S)
    assert set(told) == {True} and len(told) >= 8
    now["pressed"] = False
    assert for_a_while(10 * EVERY_S) == [False]
