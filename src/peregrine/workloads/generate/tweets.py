"""Tweets as feeds send them: JSON texts of users of several regions, one feed for each region (Shepherd VI-B).

Tweet n is a function of (seed, n). A user lives in one region, so the tweets of a user come from one feed, in order.
Words are drawn from small lists, some with capitals, symbols and escapes, as a feed has them.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from peregrine.workloads.generate.draws import Numbers, below, happens, skewed, stretch, uniform
from peregrine.workloads.generate.sending import event_times, sent_us, table

TWEETS = "tweet string, at_ms bigint"

POSITIVE = ("great", "love", "happy", "win", "nice", "cool", "best", "thanks", "good", "hope")
NEGATIVE = ("bad", "sad", "hate", "fail", "late", "worst", "angry", "broken", "lost", "cry")
STOP_WORDS = ("the", "a", "is", "to", "and", "of", "in", "it", "you", "dont", "at", "this")
NEUTRAL = ("train", "city", "game", "coffee", "monday", "rain", "music", "news", "traffic", "2026")
# As they stand inside of a JSON string. The last two have no letter or digit: nothing of them is left as a word.
ORNATE = (
    "Great!",
    "LOVE",
    "#win",
    "bad...",
    "@You",
    "Don't",
    "The",
    "caf\\u00e9",
    '\\"nice\\"',
    "sad,",
    "\\u2764",
    "..",
)
FOREIGN = ("heute", "Wetter", "schön", "tren", "ciudad", "música", "bonjour", "bad", "love", "merci")
LANGUAGES = ("en", "de", "es", "fr")

_ENGLISH = POSITIVE + NEGATIVE + STOP_WORDS + STOP_WORDS + NEUTRAL + NEUTRAL + ORNATE
_SHORTEST, _LONGEST = 3, 14


def tweets(
    count: int,
    seed: int = 0,
    *,
    first: int = 0,
    rate: int = 1000,
    users: int = 1000,
    regions: int = 4,
    skew: float = 1.0,
    english: float = 0.6,
    disorder_ms: int = 0,
    start_ms: int = 0,
) -> pa.Table:
    """Tweets `first` to `first + count`, `rate` a second; the share `english` of them is in English.

    `skew` is the Zipf exponent of how much users write (0: all alike). User u lives in region u mod `regions`.
    """
    numbers = stretch(first, count)
    user = skewed(users, skew, seed, "user", numbers)
    is_english = happens(english, seed, "english", numbers)
    language = np.where(is_english, 0, 1 + below(len(LANGUAGES) - 1, seed, "language", numbers))
    pieces = [
        '{"id":',
        pa.array(numbers).cast(pa.string()),
        ',"user":"u',
        pa.array(user).cast(pa.string()),
        '","region":"r',
        pa.array(user % regions).cast(pa.string()),
        '","lang":"',
        pa.array(LANGUAGES).take(pa.array(language)),
        '","text":"',
        _texts(numbers, is_english.astype(np.int64), seed),
        '"}',
    ]
    sent = sent_us(numbers, rate)
    columns = {
        "tweet": pc.binary_join_element_wise(*pieces, ""),
        "at_ms": event_times(sent, start_ms, disorder_ms, seed),
    }
    return table(columns, "feed-r", regions, user % regions, sent)


def _texts(numbers: Numbers, is_english: Numbers, seed: int) -> pa.Array:
    lengths = _SHORTEST + below(_LONGEST - _SHORTEST + 1, seed, "length", numbers)
    starts = np.concatenate(([0], np.cumsum(lengths)))
    # Word w of tweet n is drawn by the number n * _LONGEST + w.
    nth = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)
    drawn = uniform(seed, "word", np.repeat(numbers, lengths) * _LONGEST + nth)
    english = np.repeat(is_english, lengths) == 1
    picks = np.where(english, drawn * len(_ENGLISH), len(_ENGLISH) + drawn * len(FOREIGN)).astype(np.int64)
    words = pa.ListArray.from_arrays(pa.array(starts, pa.int32()), pa.array(_ENGLISH + FOREIGN).take(pa.array(picks)))
    return pc.binary_join(words, " ")
