"""Tweets: the same for the same seed, by any stretch; and the oracle by hand."""

import json

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from oracles.tweets import expected
from peregrine.workloads.generate.tweets import POSITIVE, TWEETS, tweets


def of(*texts: dict[str, object]) -> dict[str, pa.Table]:
    return {"tweets": pa.table({"tweet": [json.dumps(text) for text in texts]})}


def test_a_seed_gives_the_same_tweets_and_another_one_others() -> None:
    assert tweets(200, 3).equals(tweets(200, 3))
    assert not tweets(200, 3).equals(tweets(200, 4))


@pytest.mark.parametrize("more", [{}, {"skew": 0.0, "users": 7}, {"disorder_ms": 30, "start_ms": 1000, "rate": 77}])
def test_stretches_are_pieces_of_the_whole(more: dict[str, int]) -> None:
    whole = tweets(100, 5, **more)
    assert pa.concat_tables([tweets(30, 5, **more), tweets(70, 5, first=30, **more)]).equals(whole)


def test_tweets_have_the_columns_of_their_schema_and_say_who_sends_them() -> None:
    made = tweets(300, users=50, regions=3)
    assert TWEETS == "tweet string, at_ms bigint"
    assert made.schema.names[:2] == ["tweet", "at_ms"]
    assert [made.schema.field(name).type for name in ("tweet", "at_ms", "source")] == [
        pa.string(),
        pa.int64(),
        pa.string(),
    ]
    parsed = [json.loads(text) for text in made["tweet"].to_pylist()]
    assert [tweet["id"] for tweet in parsed] == list(range(300))
    assert [f"feed-{tweet['region']}" for tweet in parsed] == made["source"].to_pylist()
    assert all(int(tweet["user"][1:]) % 3 == int(tweet["region"][1:]) for tweet in parsed)


def test_rate_skew_share_of_english_and_disorder_are_as_asked() -> None:
    made = tweets(2000, rate=500, english=0.25, skew=1.5, users=100)
    times = made["at_ms"].to_pylist()
    assert times == sorted(times) and times[1000] == 2000
    parsed = [json.loads(text) for text in made["tweet"].to_pylist()]
    assert 0.2 < sum(tweet["lang"] == "en" for tweet in parsed) / 2000 < 0.3
    assert sum(tweet["user"] == "u0" for tweet in parsed) > 5 * sum(tweet["user"] == "u9" for tweet in parsed)
    late = pc.subtract(made["at_ms"], tweets(2000, rate=500, disorder_ms=40)["at_ms"]).to_pylist()
    assert min(late) == 0 and max(late) == 40


def test_no_tweets_are_an_empty_table() -> None:
    assert tweets(0).num_rows == 0 and tweets(0).schema == tweets(1).schema


def test_the_oracle_cleans_counts_and_scores_words() -> None:
    tables = of(
        {"id": 1, "user": "u1", "lang": "en", "text": "Great! GREAT day, and #win... it's"},
        {"id": 2, "user": "u1", "lang": "de", "text": "great great"},
        {"id": 3, "user": "u2", "lang": "en", "text": "the ❤ a"},
        {"id": 4, "user": "u1", "lang": "en", "text": "Don't hate bad\tcafé good-bye"},
    )
    # 1: great great day win its (and is a stop word); 3: nothing left; 4: hate bad caf goodbye (dont is a stop word)
    assert expected("scores", tables) == [(1, 5, 3), (3, 0, 0), (4, 4, -2)]
    assert expected("moods", tables) == [("u1", 1, 3), ("u1", 2, 1), ("u2", 1, 0)]
    assert expected("scores", tables, positive=(*POSITIVE, "day"), stop_words=()) == [(1, 6, 4), (3, 2, 0), (4, 5, -2)]


def test_the_oracle_finds_words_of_all_kinds_in_generated_tweets() -> None:
    scores = [score for _, _, score in expected("scores", {"tweets": tweets(500)})]
    assert min(scores) < -1 and max(scores) > 1 and 0 in scores
