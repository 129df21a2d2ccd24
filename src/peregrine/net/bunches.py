"""The parts of an answer that goes on for ever, as many at a time as have come.

One by one, whoever fell behind once would stay behind: parts that were pushed while he was busy are as small as ever,
and each costs a call. (Over a socket of our own no thread is needed for it: net/local_client.py.)
"""

import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue

FULL_S = 0.001  # until it is looked again whether there is room


def together(parts: Iterator[bytes], most: int) -> Iterator[list[bytes]]:
    """All parts that have come by now, again and again."""
    came: SimpleQueue[bytes | BaseException | None] = SimpleQueue()
    left = threading.Event()

    def read() -> None:
        try:
            for part in parts:
                came.put(part)
                while came.qsize() >= most and not left.is_set():  # the rest waits at the router
                    time.sleep(FULL_S)
                if left.is_set():
                    return
            came.put(None)
        except BaseException as error:  # for the one who waits
            came.put(error)

    threading.Thread(target=read, name="parts", daemon=True).start()
    try:
        while True:
            taken = [came.get()]
            while not came.empty() and len(taken) < most:
                taken.append(came.get())
            found = [each for each in taken if isinstance(each, bytes)]
            if found:
                yield found
            for each in taken:
                if isinstance(each, BaseException):
                    raise each
            if None in taken:
                return
    finally:
        left.set()
