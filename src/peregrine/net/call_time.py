"""How long calls take, lately: where it is long, somebody is busy, and fewer calls are better."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

OF_THE_LAST = 0.2  # how much the last call counts


class CallTime:
    def __init__(self) -> None:
        self.mean_s = 0.0

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Around a call, however it ends."""
        began_s = time.monotonic()
        try:
            yield
        finally:
            self.mean_s += OF_THE_LAST * (time.monotonic() - began_s - self.mean_s)
