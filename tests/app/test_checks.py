"""Mistakes of users that are found at submission. The functions here are never called: they are read."""

import datetime
import datetime as dt
import functools
import os
import random
import secrets
import threading
import time
import uuid
from collections.abc import Callable
from datetime import date
from functools import partial
from random import Random, randint
from time import time as now
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.cloudpickle import dumps

from peregrine.app.checks import check_deterministic, check_pickles, check_signature, deterministic
from peregrine.errors import ConfigurationError

GENERATOR = Random(5)
NUMPY_GENERATOR = np.random.default_rng(5)
LIMITS = ("clock", "time.time")  # looks like a finding, and is none


def helper(row: Any) -> float:
    return second_helper(row)


def second_helper(row: Any) -> float:
    return row.at - time.monotonic()


def local_import(row: Any) -> Any:
    import uuid as identifiers

    return identifiers.uuid4()


def local_import_from(row: Any) -> Any:
    from numpy.random import normal

    return normal()


def local_import_of_a_part(row: Any) -> Any:
    import numpy.random as r

    return r.rand()


def alias(row: Any) -> Any:
    clock = time
    return clock.time_ns()


def inner_function(row: Any) -> Any:
    def deeper() -> Any:
        return [datetime.datetime.utcnow() for _ in range(3)]

    return deeper()


def import_for_an_inner_function(row: Any) -> Any:
    import random as dice

    return [dice.random() for _ in row]


def closure_over(thing: Any) -> Callable[[Any], Any]:
    return lambda row: thing()


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def around(*arguments: Any) -> Any:
        return function(*arguments)

    return around


@wrapped
def decorated(row: Any) -> Any:
    return os.urandom(4)


class Clock:
    @staticmethod
    def read() -> float:
        return time.perf_counter()


class Base:
    def stamp(self) -> float:
        return now()


class Processor(Base):
    def handleInputRows(self, key: Any, rows: Any, timer_values: Any) -> Any:
        yield key


class WithGenerator:
    def __init__(self) -> None:
        self.dice = Random(3)


CLOCKS: list[tuple[str, Any]] = [
    ("time.time", lambda row: time.time()),
    ("time.time", lambda row: now() - row.at),
    ("time.time_ns", alias),
    ("time.monotonic", helper),
    ("time.perf_counter", lambda row: Clock.read()),
    ("time.perf_counter", lambda row: Clock()),
    ("datetime.now", lambda row: datetime.datetime.now()),
    ("datetime.now", lambda row: dt.datetime.now(dt.UTC)),
    ("datetime.utcnow", inner_function),
    ("date.today", lambda row: date.today()),
    ("Timestamp.now", lambda row: pd.Timestamp.now()),
    ("time.gmtime", lambda row: time.gmtime()),
    ("time.time", Processor()),
    ("time.time", Processor),
    ("time.time", closure_over(time.time)),
    ("datetime.now", closure_over(datetime.datetime.now)),
    ("time.time", lambda row, clock=time.time: clock()),
    ("time.time", partial(lambda clock, row: clock(), time.time)),
    ("time.time", time.time),
    ("time.time", Processor().stamp),
]
RANDOM: list[tuple[str, Any]] = [
    ("random.random", lambda row: random.random()),
    ("random.random", import_for_an_inner_function),
    ("random.randint", lambda row: randint(1, 6)),
    ("random.randint", randint),
    ("random.shuffle", lambda row: [random.shuffle(each) for each in row.all]),
    ("random.SystemRandom", lambda row: random.SystemRandom(4)),
    ("random.Random", lambda row: Random().random()),
    ("Random.random", lambda row: GENERATOR.random()),
    ("Generator.normal", lambda row: NUMPY_GENERATOR.normal()),
    ("WithGenerator.dice", WithGenerator()),
    ("uuid.uuid1", lambda row: uuid.uuid1()),
    ("uuid.uuid4", local_import),
    ("os.urandom", decorated),
    ("secrets.token_hex", lambda row: secrets.token_hex()),
    ("numpy.random.rand", lambda row: np.random.rand()),
    ("numpy.random.rand", local_import_of_a_part),
    ("numpy.random.normal", local_import_from),
    ("default_rng() without a seed", lambda row: np.random.default_rng()),
]


@pytest.mark.parametrize(("name", "thing"), CLOCKS)
def test_a_clock_is_found(name: str, thing: Any) -> None:
    with pytest.raises(ConfigurationError) as raised:
        check_deterministic("speeds", thing)
    assert "operator speeds reads the clock (" in raised.value.what and name in raised.value.what
    assert "getCurrentProcessingTimeInMs" in raised.value.remedy


@pytest.mark.parametrize(("name", "thing"), RANDOM)
def test_randomness_is_found(name: str, thing: Any) -> None:
    with pytest.raises(ConfigurationError) as raised:
        check_deterministic("speeds", thing)
    assert "operator speeds draws random numbers (" in raised.value.what and name in raised.value.what
    assert "derive them from the record" in raised.value.remedy


def test_the_line_is_named() -> None:
    first = second_helper.__code__.co_firstlineno
    with pytest.raises(ConfigurationError) as raised:
        check_deterministic("speeds", helper)
    assert f"(time.monotonic, {__file__}:{first + 1})" in raised.value.what


class Harmless:
    random_field = 3
    time = 4

    def __init__(self) -> None:
        self.now = 5

    def handleInputRows(self, key: Any, rows: Any, timer_values: Any) -> Any:
        for row in rows:
            yield self.random_field, self.time, self.now, row.time, timer_values.getCurrentProcessingTimeInMs()


@deterministic
def measured(row: Any) -> float:
    return time.time()


def own_clock(time: Any) -> Any:
    random = time.random
    return time.time() + random.random()


def seeded(row: Any) -> Any:
    dice = random.Random(row.id)
    return dice.random() + np.random.default_rng(seed=row.id).normal()


@deterministic
class Sampler:
    def __call__(self, row: Any) -> bool:
        return random.random() < 0.5


def mutual(row: Any) -> Any:
    return mutual_too(row)


def mutual_too(row: Any) -> Any:
    return mutual(row)


@pytest.mark.parametrize(
    "thing",
    [
        Harmless(),
        Harmless,
        own_clock,
        seeded,
        mutual,
        measured,
        Sampler(),
        Sampler,
        len,
        str.upper,
        lambda row: measured(row),
        lambda row: Sampler()(row),
        lambda row: LIMITS[0] + os.path.join(row.time, row.random),
        lambda row: datetime.datetime.fromtimestamp(row.now, dt.UTC) + datetime.timedelta(days=1),
        lambda row: (time.strptime(row.text, "%Y"), time.gmtime(row.at), uuid.uuid5(uuid.NAMESPACE_DNS, row.name)),
        lambda row: secrets.compare_digest(row.a, row.b),
        lambda row: isinstance(row.dice, random.Random),
        lambda row: random.Random(5).random(),
        lambda row: np.sum(row.values) + np.random.default_rng(5).random(),
        lambda row: pd.Timestamp(row.at),
        lambda now: now(),
        partial(lambda limit, row: row.speed > limit, 5),
    ],
)
def test_what_a_replay_repeats_is_no_mistake(thing: Any) -> None:
    check_deterministic("speeds", thing)


def test_nothing_of_the_code_is_run() -> None:
    class Trap:
        @property
        def value(self) -> None:
            raise AssertionError

        def __call__(self, row: Any) -> Any:
            return self.value

    check_deterministic("speeds", Trap())


class Holder:
    def __init__(self, inner: Any) -> None:
        self.inner = inner


def holding(thing: Any) -> Callable[[Any], Any]:
    return lambda row: thing


def test_what_cannot_be_pickled_is_named() -> None:
    lock = threading.Lock()
    function = holding(lock)
    with pytest.raises(ConfigurationError) as raised:
        check_pickles("speeds", function, dumps)
    place = f"{__file__}:{function.__code__.co_firstlineno}"
    assert (
        f"operator speeds cannot be sent to where it runs: the lambda ({place}) refers to `thing`, a _thread.lock"
        in (raised.value.what)
    )
    assert "inside of the function" in raised.value.remedy


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda lock: Holder(lock), "the Holder refers to `inner`, a _thread.lock"),
        (lambda lock: Holder(Holder([1, lock])), "the Holder refers to `inner.inner[1]`, a _thread.lock"),
        (lambda lock: holding(Holder({"a": lock})), "refers to `thing.inner['a']`, a _thread.lock"),
        (lambda lock: partial(max, lock), "the partial refers to `argument 0`, a _thread.lock"),
        (lambda lock: holding(holding(lock)), "refers to `thing`, a _thread.lock"),
        (lambda lock: lock, "the lock is a _thread.lock"),
    ],
)
def test_the_way_to_what_cannot_be_pickled_is_told(make: Callable[[Any], Any], told: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        check_pickles("speeds", make(threading.Lock()), dumps)
    assert told in raised.value.what


def test_what_can_be_pickled_is_no_mistake() -> None:
    local = {"limit": 5}
    check_pickles("speeds", lambda row: row.speed > local["limit"], dumps)
    check_pickles("speeds", Holder(holding(3)), dumps)


class Callables:
    def one(self, row: Any) -> None: ...

    def __call__(self, key: Any, rows: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "positional"),
    [
        (lambda row: row, 1),
        (lambda a, b: a, 2),
        (lambda *all: all, 7),
        (lambda a, b=3: a, 1),
        (lambda a, b=3: a, 2),
        (Callables().one, 1),
        (Callables(), 2),
        (partial(lambda a, b: a, 1), 1),
        (max, 2),
        (str, 1),
    ],
)
def test_a_function_that_can_be_called_is_no_mistake(function: Any, positional: int) -> None:
    check_signature("speeds", function, positional)


@pytest.mark.parametrize(
    ("function", "positional", "told"),
    [
        (lambda: 1, 1, r"the lambda \(.*test_checks.py:\d+\) takes \(\), but is called with 1 argument "),
        (lambda a: 1, 2, r"takes \(a\), but is called with 2 arguments \(too many"),
        (lambda a, *, b: 1, 1, r"takes \(a, \*, b\), .*missing a required.*'b'"),
        (helper, 2, r"the function helper \(.*test_checks.py:\d+\) takes \(row: Any\)"),
        (Callables(), 1, r"the Callables takes \(key: Any, rows: Any\)"),
        (3, 1, "operator speeds is given 3, which cannot be called\n  remedy: give a function of 1 argument"),
    ],
)
def test_a_function_that_cannot_be_called_is_told(function: Any, positional: int, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        check_signature("speeds", function, positional)
