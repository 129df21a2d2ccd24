"""A checker that looks at each result as it comes, and keeps none."""

import pytest

from peregrine.bench.spark.soak import Checker
from peregrine.workloads import road

KEYS, SENT = 3, 20


def results() -> list[tuple[str, int, bytes]]:
    """In the order of sending."""
    found = [(car, *each) for (_, car, _), line in road.results(SENT, KEYS).items() for each in line]
    return sorted(found, key=lambda each: each[1])


def test_right_results_are_right_whatever_the_order_between_keys() -> None:
    checker = Checker(KEYS)
    for each in sorted(results()):
        checker.see(*each)
    assert (checker.checked, checker.missing(SENT), checker.wrong) == (SENT, 0, [])
    assert checker.states()["car0"][0] == 7


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda right: [*right[:9], *right[8:]], "again"),
        (lambda right: [*right[:8], *right[9:]], "before"),
        (lambda right: [*right[:8], right[11], *right[9:11], right[8], *right[12:]], "before"),
        (lambda right: [*right[:8], (*right[8][:2], b"{}"), *right[9:]], "is b'{}'"),
    ],
    ids=["repeated", "lost", "out of order", "wrong"],
)
def test_what_is_wrong_is_noticed(spoil: object, complaint: str) -> None:
    checker = Checker(KEYS)
    for each in spoil(results()):  # type: ignore[operator]
        checker.see(*each)
    assert complaint in checker.wrong[0]


def test_what_has_not_come_is_missing() -> None:
    checker = Checker(KEYS)
    for each in results()[:-4]:
        checker.see(*each)
    assert checker.missing(SENT) == 4 and not checker.wrong
