"""An application with a DataFrame operator: texts are scored in pandas, as a model would do it."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from peregrine import App
from peregrine.workloads.generate.draws import stretch
from peregrine.workloads.generate.sending import sent_us, table

TEXTS = "key string, n bigint"
SCORES = "key string, n bigint, score double"


def scores(senders: Iterable[str] | None = None, *, groups: int = 4) -> App:
    app = App("texts", groups)
    app.source("texts", TEXTS, key="key", senders=senders).transform("score", scored, SCORES).to("scores")
    return app


def scored(texts: Any) -> Any:
    def score(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch.assign(score=batch["n"].map(score_of))[["key", "n", "score"]]

    return texts.mapInPandas(score, SCORES)


def score_of(n: int) -> float:
    return float(n * 7919 % 10007) / 10007


def texts(
    count: int, seed: int = 0, *, first: int = 0, rate: int = 1200, keys: int = 10, sources: int = 1, start_ms: int = 0
) -> pa.Table:
    numbers = stretch(first, count)
    key = numbers % keys
    columns = {"key": np.array([f"k{n}" for n in range(keys)])[key], "n": numbers}
    return table(columns, "camera", sources, key % sources, sent_us(numbers, rate))
