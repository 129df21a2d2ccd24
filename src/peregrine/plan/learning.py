"""Coefficients that learn from predictions and what came of them. Pure: a new value for each lesson.

Two things can be wrong with a prediction. What a piece of work takes on this machine (a turn of a host, a megabyte, a
key) is the same for all mechanisms, so it is learnt from all of them, by recursive least squares that begin at the
defaults with a doubt of their own size: what was never varied stays near its default instead of running away, which
plain least squares would do with five lessons and seven coefficients. What a mechanism does that its table does not
show is a factor of that mechanism: a mean of logarithms (off by half and off by twice weigh the same) that forgets.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]

NOISE = 0.2  # how far a duration is off for no reason, as a share of it
MOST = math.log(4)  # that one lesson may be off by: what is stranger was something else
FORGETS_AFTER = 5  # lessons: the machine of today counts
LEAST = 0.05  # of its default that a coefficient keeps: time does not run backwards


@dataclass(frozen=True, slots=True)
class Coefficients:
    """A linear model: so much for each unit of each kind of work."""

    defaults: tuple[float, ...]
    doubts: tuple[float, ...]  # how far a default may be off, as a share of it
    values: tuple[float, ...] = ()
    covariance: tuple[tuple[float, ...], ...] = ()

    def of(self, work: tuple[float, ...]) -> float:
        return math.fsum(a * b for a, b in zip(self.values or self.defaults, work, strict=True))

    def learnt(self, work: tuple[float, ...], measured: float) -> "Coefficients":
        """Behind one lesson."""
        features = np.asarray(work)
        values = np.asarray(self.values or self.defaults)
        spread = self._covariance()
        noise = (NOISE * max(measured, 1.0)) ** 2
        gain = spread @ features / (features @ spread @ features + noise)
        values = np.maximum(values + gain * (measured - features @ values), LEAST * np.asarray(self.defaults))
        spread = spread - np.outer(gain, features) @ spread
        return replace(self, values=tuple(values.tolist()), covariance=tuple(map(tuple, spread.tolist())))

    def _covariance(self) -> Matrix:
        if self.covariance:
            # A little doubt comes back with each lesson, or the first ones would count for ever.
            return np.asarray(self.covariance, np.float64) + self._doubt() / FORGETS_AFTER / 10
        return self._doubt()

    def _doubt(self) -> Matrix:
        return np.diag(np.square(np.asarray(self.defaults, np.float64) * np.asarray(self.doubts)))


@dataclass(frozen=True, slots=True)
class Factors:
    """By name: by how much what is measured differs from what was said."""

    logarithms: Mapping[str, tuple[float, int]] = field(default_factory=dict)  # name -> (mean, lessons)

    def of(self, name: str) -> float:
        return math.exp(self.logarithms.get(name, (0.0, 0))[0])

    def learnt(self, name: str, said: float, measured: float, about: float = 1.0) -> "Factors":
        """`about`: differences that are small beside it do not matter."""
        mean, lessons = self.logarithms.get(name, (0.0, 0))
        error = min(max(math.log((measured + about) / (said + about)), -MOST), MOST)
        gain = 1 / (min(lessons, FORGETS_AFTER) + 1.5)  # the half: a single lesson is not believed quite
        return Factors({**self.logarithms, name: (mean + gain * (error - mean), lessons + 1)})


AS_SAID = Factors()
