"""Programs of a peer: started with what it needs, ended with us, and their last words where one fails."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from peregrine.errors import PeregrineError

# A program that does not listen ends too when the pipe from here closes, whatever has closed it.
_WATCHED = 'exec 3<&0; "$0" "$@" </dev/null & mine=$!; (cat <&3; kill $mine) >/dev/null 2>&1 & wait $mine'
PROGRAMS = Path(__file__).parent / "programs"
END_S = 15.0
LAST_LINES = 12


def last_lines(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines()[-LAST_LINES:]


class Child:
    def __init__(
        self, words: Sequence[str | Path], log: Path, more: Mapping[str, str] | None = None, answers: bool = True
    ) -> None:
        """It is asked and answers in lines of JSON, if it `answers` at all; what else it says goes to the log."""
        self._log = log
        with open(log, "ab") as said:
            self._process = subprocess.Popen(
                words if answers else ["bash", "-c", _WATCHED, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if answers else said,
                stderr=said,
                text=True,
                env={**os.environ, **(more or {})},
            )

    def ask(self, **asked: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return self.hear()

    def hear(self) -> dict[str, Any]:
        """The next line that is an answer: libraries say other things on the same way."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        raise PeregrineError("\n".join([f"{self._log.name} ended", *last_lines(self._log)]), "see what it said")

    def check(self) -> None:
        if self._process.poll() is not None:
            what = f"{self._log.name} ended with {self._process.returncode}"
            raise PeregrineError("\n".join([what, *last_lines(self._log)]), "see what it said")

    def wait(self, seconds: float) -> None:
        """Until it has ended by itself."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise PeregrineError(f"{self._log.name} takes longer than {seconds:g} s", "see its log") from error
        if code:
            self.check()

    def end(self) -> None:
        """With the pipe, if it has not ended before."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
