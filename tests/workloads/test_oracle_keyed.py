"""Applications in memory against their oracles: Nexmark, Linear Road, the stock exchange, key count."""

import random
from itertools import groupby, islice

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from oracles import nexmark as nexmark_oracle
from oracles.keyed_cases import CASES, RESULTS, Case, as_tuples, rows_of, senders
from peregrine import InMemory
from peregrine.workloads import nexmark


def moved(run: InMemory) -> InMemory:
    """As it would be in another process: code and states have travelled as bytes."""
    return cloudpickle.loads(cloudpickle.dumps(run))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_results_are_those_of_the_oracle_however_senders_are_mixed(case: Case, seed: int) -> None:
    rng = random.Random(seed)
    tables = case.tables()
    left = {sender: rows_of(tables, sender) for sender in senders(tables)}
    assert len(left) == 3
    reached_ms = dict.fromkeys(left, 0)
    run = InMemory(case.app(list(left)))
    stretches = 0
    while left:
        sender = rng.choice(sorted(left))
        stretch = list(islice(left[sender], rng.randrange(1, 50)))
        for stream, rows in groupby(stretch, key=lambda each: each[0]):
            run.send(stream, [row for _, row, _ in rows], sender)
        reached_ms[sender] = stretch[-1][2] if stretch else reached_ms[sender]
        for stream in tables:
            run.heartbeat(stream, reached_ms[sender], sender)
        if not stretch:
            del left[sender]
        stretches += 1
        if stretches % 5 == 0:
            run = moved(run)
            if case.in_event_time:
                until_ms = min(reached_ms.values()) - case.building.get("delay_ms", 0)
                assert as_tuples(run.results(RESULTS)) == case.expected(tables, until_ms=until_ms)
    run.finish()
    expected = case.expected(tables)
    assert as_tuples(run.results(RESULTS)) == expected
    assert len(expected) > 10
    assert stretches > 20


def test_sales_of_one_time_count_in_the_order_of_their_auctions_as_the_oracle_has_it() -> None:
    auctions = [
        {"auction": n, "seller": 1, "category": 0, "reserve": 0, "expires_ms": 100, "at_ms": 0} for n in range(12)
    ]
    bids = [{"auction": n, "bidder": 1, "price": 2**n, "at_ms": 1} for n in range(12)]
    run = InMemory(nexmark.q6(["market"], last=2, groups=4))
    run.send("auctions", auctions)
    run.send("bids", bids)
    run.finish()
    tables = {"auctions": pa.Table.from_pylist(auctions), "bids": pa.Table.from_pylist(bids)}
    assert as_tuples(run.results(RESULTS)) == nexmark_oracle.expected("q6", tables, last=2)


def test_cases_have_what_they_are_for() -> None:
    """Rows with which a wrong operator could not hide: tolls are due, cars come and go, prices reach their reserve."""
    found = {name: case.expected(case.tables()) for name, case in CASES.items()}
    assert len({auction for _, auction, _ in found["q5"]}) > 1
    assert any(toll > 0 for *_, toll in found["toll"]) and any(toll == 0 for *_, toll in found["toll"])
    assert len({cars for *_, cars in found["accident"]}) > 10
    assert any(spread is None for *_, spread in found["stock"])
    assert max(version for *_, version in found["key_count"]) > 5
