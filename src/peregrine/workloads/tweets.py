"""Sentiment of tweets (Shepherd VI-B): a chain of six stateless operators, and the mood of each user behind it.

    P parse, F English only, S lower case without symbols, T without stop words, C count words, E score

Rows are many and small. The chain runs in one pass, wherever the feed's rows are handled. `tests/oracles/tweets.py`
says exactly what comes out.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from peregrine import App, Count, Sum
from peregrine.workloads.generate.tweets import NEGATIVE, POSITIVE, STOP_WORDS, TWEETS

_SYMBOLS = re.compile(r"[^a-z0-9\s]")
_decode = msgspec.json.decode


def tweets(
    senders: Iterable[str] | None = None,
    *,
    stop_words: tuple[str, ...] = STOP_WORDS,
    positive: tuple[str, ...] = POSITIVE,
    negative: tuple[str, ...] = NEGATIVE,
    groups: int = 16,
) -> App:
    """Results: `scores` (id, user, words, score) of each English tweet; after each, `moods` (user, tweets, total)."""
    app = App("tweets", groups)
    scored = (
        app.source("tweets", TWEETS, event_time="at_ms", senders=senders)
        .map("parse", _parse, "id bigint, user string, lang string, text string")
        .filter("english", lambda tweet: tweet.lang == "en")
        .map("letters", _letters, "id bigint, user string, text string")
        .map("telling", _telling(frozenset(stop_words)), "id bigint, user string, words array<string>")
        .map("count", _counted, "id bigint, user string, words bigint, counts map<string,bigint>")
        .map(
            "score",
            _scored(frozenset(positive), frozenset(negative)),
            "id bigint, user string, words bigint, score bigint",
        )
    )
    scored.to("scores")
    scored.key_by("user").aggregate("mood", tweets=Count(), total=Sum("score")).to("moods")
    return app


APPS: Mapping[str, Callable[..., App]] = {"tweets": tweets}


def _parse(row: Any) -> dict[str, Any]:
    tweet = _decode(row.tweet)
    return {name: tweet[name] for name in ("id", "user", "lang", "text")}


def _letters(tweet: Any) -> dict[str, Any]:
    return {"id": tweet.id, "user": tweet.user, "text": _SYMBOLS.sub("", tweet.text.lower())}


def _telling(stop_words: frozenset[str]) -> Callable[[Any], dict[str, Any]]:
    def telling(tweet: Any) -> dict[str, Any]:
        words = [word for word in tweet.text.split() if word not in stop_words]
        return {"id": tweet.id, "user": tweet.user, "words": words}

    return telling


def _counted(tweet: Any) -> dict[str, Any]:
    return {"id": tweet.id, "user": tweet.user, "words": len(tweet.words), "counts": Counter(tweet.words)}


def _scored(positive: frozenset[str], negative: frozenset[str]) -> Callable[[Any], dict[str, Any]]:
    def scored(tweet: Any) -> dict[str, Any]:
        score = sum(count * ((word in positive) - (word in negative)) for word, count in tweet.counts.items())
        return {"id": tweet.id, "user": tweet.user, "words": tweet.words, "score": score}

    return scored
