"""The oracles against examples small enough to be worked out by hand."""

import pyarrow as pa

from oracles import key_count, linear_road, nexmark, stock


def table(names: str, *rows: tuple) -> pa.Table:
    return pa.table({name: [row[i] for row in rows] for i, name in enumerate(names.split())})


BIDS = table(
    "auction bidder price at_ms",
    (2, 7, 300, 100),
    (1, 8, 200, 1900),
    (1, 9, 300, 2000),
    (2, 6, 300, 2500),
    (1, 5, 250, 3999),
)


def test_the_hottest_auction_of_sliding_windows_by_hand() -> None:
    assert nexmark.expected("q5", {"bids": BIDS}, size_ms=2000, slide_ms=1000) == [
        (1000, 2, 1),  # [-1000, 1000)
        (2000, 1, 1),  # one bid each: the smaller auction
        (3000, 1, 2),
        (4000, 1, 2),
        (5000, 1, 1),
    ]
    assert [
        end for end, _, _ in nexmark.expected("q5", {"bids": BIDS}, size_ms=2000, slide_ms=1000, until_ms=3999)
    ] == [
        1000,
        2000,
        3000,
    ]


def test_the_highest_bid_of_tumbling_windows_by_hand() -> None:
    assert nexmark.expected("q7", {"bids": BIDS}, size_ms=2000) == [(2000, 2, 300, 7), (4000, 1, 300, 9)]
    tie = table("auction bidder price at_ms", (4, 9, 5, 0), (4, 3, 5, 1), (6, 1, 5, 2))
    assert nexmark.expected("q7", {"bids": tie}, size_ms=10) == [(10, 4, 5, 3)]
    assert nexmark.expected("q7", {"bids": tie}, size_ms=10, until_ms=9) == []


def test_the_average_price_of_the_last_sales_by_hand() -> None:
    auctions = table(
        "auction seller reserve expires_ms at_ms",
        (0, 1, 10, 500, 0),
        (1, 1, 10, 100, 0),
        (2, 1, 50, 200, 0),  # nobody bids enough
        (3, 2, 0, 100, 0),
        (4, 1, 0, 500, 0),
        (5, 1, 0, 900, 300),
    )
    bids = table(
        "auction bidder price at_ms",
        (0, 1, 20, 499),
        (0, 2, 90, 500),  # too late
        (1, 1, 10, 0),
        (1, 1, 9, 1),
        (2, 1, 49, 10),
        (3, 1, 7, 10),
        (4, 1, 31, 10),
        (5, 3, 99, 299),  # too early
        (5, 3, 60, 300),
    )
    tables = {"auctions": auctions, "bids": bids}
    assert nexmark.expected("q6", tables, last=2) == [(1, 500, 15.0), (1, 900, 45.5)]  # 10, 20 | 31, 60
    assert nexmark.expected("q6", tables, last=2, until_ms=899) == [(1, 500, 15.0)]
    assert nexmark.expected("q6", tables, last=3) == [(1, 500, 61 / 3)]


def test_newcomers_who_bid_by_hand() -> None:
    persons = table("person name city at_ms", (1, "Ada", "", 900), (2, "Bo", "", 1100), (3, "Cy", "", 1200))
    bids = table("auction bidder price at_ms", (0, 1, 1, 2100), (0, 1, 1, 2000), (0, 2, 1, 1050), (0, 4, 1, 1200))
    tables = {"persons": persons, "bids": bids}
    assert nexmark.expected("q8", tables, size_ms=2000, slide_ms=1000) == [(2000, 2, "Bo"), (3000, 2, "Bo")]
    assert nexmark.expected("q8", tables, size_ms=3000, slide_ms=3000) == [(3000, 1, "Ada"), (3000, 2, "Bo")]


def test_windows_whose_size_is_no_multiple_of_the_slide_by_hand() -> None:
    bids = table("auction bidder price at_ms", (1, 1, 1, 10), (1, 1, 1, 12), (1, 1, 1, 14))
    assert nexmark.expected("q5", {"bids": bids}, size_ms=5, slide_ms=3) == [(11, 1, 1), (14, 1, 2), (17, 1, 2)]


REPORTS = table(
    "car speed segment position at_ms",
    (1, 30, 0, 10, 0),
    (2, 35, 0, 20, 400),
    (1, 31, 0, 50, 900),
    (3, 80, 1, 6000, 950),
    (2, 30, 0, 70, 1200),
)


def test_tolls_by_hand() -> None:
    found = linear_road.expected(
        "toll", {"positions": REPORTS}, size_ms=1000, slide_ms=1000, speed_limit=40, cars_limit=1
    )
    assert found == [(1000, 0, 32.0, 2, 2), (1000, 1, 80.0, 1, 0), (2000, 0, 30.0, 1, 0)]
    strict = linear_road.expected(
        "toll", {"positions": REPORTS}, size_ms=1000, slide_ms=1000, speed_limit=32, cars_limit=1, until_ms=1000
    )
    assert strict == [(1000, 0, 32.0, 2, 0), (1000, 1, 80.0, 1, 0)]


def test_accidents_by_hand() -> None:
    positions = table(
        "car speed segment position at_ms",
        (1, 0, 0, 10, 0),
        (2, 9, 0, 20, 5),
        (1, 0, 0, 10, 10),
        (9, 9, 1, 99, 11),  # another segment knows nothing of it
        (1, 0, 0, 10, 20),  # the third: an accident, car 2 is still there
        (3, 9, 0, 20, 21),
        (1, 0, 0, 10, 30),  # told again; car 2 has been silent for more than 20
        (1, 0, 0, 10, 51),  # after a longer silence: anew
        (1, 0, 0, 10, 60),
        (1, 0, 0, 10, 70),
    )
    assert linear_road.expected("accident", {"positions": positions}, reports=3, stay_ms=20) == [
        (0, 20, 1, (1, 2)),
        (0, 30, 1, (1, 3)),
        (0, 70, 1, (1,)),
    ]


def test_stock_by_hand() -> None:
    quotes = table("symbol bid ask at_ms sent_us", ("A", 10, 13, 0, 1), ("A", 10, 15, 0, 3), ("B", 1, 2, 0, 4))
    trades = table("symbol price size at_ms sent_us", ("A", 10, 1, 0, 0), ("A", 20, 3, 0, 2), ("A", 5, 4, 0, 5))
    assert stock.expected("stock", {"quotes": quotes, "trades": trades}) == [
        ("A", 1, 10, 10.0, None),
        ("A", 2, 20, 17.5, 3),
        ("A", 3, 5, 11.25, 5),
    ]


def test_key_count_by_hand() -> None:
    touches = table("key slot at_ms", (5, 0, 0), (5, 1, 0), (3, 1, 0), (5, 0, 0))
    found = key_count.expected("key_count", {"touches": touches})
    assert found == [(3, 1, 1, 1), (5, 1, 0, 1), (5, 2, 1, 1), (5, 3, 0, 2)]
    assert all(type(value) is int for row in found for value in row)
