"""What must come out of tweets: a batch computation that knows no operator.

The contract of the operators, for a table with the column `tweet`, a JSON text with id, user, region, lang and text:
  P  parse the JSON
  F  keep the tweets whose lang is "en"
  S  lower case; then every character is removed that is not a-z, 0-9 or white space
     ("Don't" gives "dont", "café" gives "caf")
  T  split at white space; words of the stop list are removed
  C  `words` is the number of words that are left, repeated words counted as often as they stand there
  E  `score` is the number of positive words less that of negative words, repeated ones counted alike

Results, each one result per English tweet, also if no word is left of it:
  "scores"   (id, words, score)
  "moods"    (user, tweets, total): the user's English tweets so far, this one included, and the sum of their scores, in
             the order in which the user's feed sends them, which is that of the table
"""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

import pandas as pd

from peregrine.workloads.generate import tweets as lists

COLUMNS = {"scores": ("id", "words", "score"), "moods": ("user", "tweets", "total")}


def expected(
    result: str,
    tables: Mapping[str, Any],
    *,
    stop_words: Collection[str] = lists.STOP_WORDS,
    positive: Collection[str] = lists.POSITIVE,
    negative: Collection[str] = lists.NEGATIVE,
) -> list[tuple[Any, ...]]:
    parsed = pd.DataFrame([json.loads(text) for text in tables["tweets"]["tweet"].to_pylist()])
    english = parsed[parsed["lang"] == "en"].reset_index(drop=True)
    cleaned = [re.sub(r"[^a-z0-9\s]", "", text.lower()).split() for text in english["text"]]
    left = pd.Series(cleaned, dtype=object).explode().dropna()
    left = left[~left.isin(list(stop_words))]
    signs = left.isin(list(positive)).astype(int) - left.isin(list(negative)).astype(int)
    english["words"] = left.groupby(level=0).size().reindex(english.index, fill_value=0)
    english["score"] = signs.groupby(level=0).sum().reindex(english.index, fill_value=0)
    english["tweets"] = english.groupby("user").cumcount() + 1
    english["total"] = english.groupby("user")["score"].cumsum()
    found = english[list(COLUMNS[result])]
    return sorted(map(tuple, found.astype(object).values.tolist()))
