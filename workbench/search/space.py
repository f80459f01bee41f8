"""What may be tried: a distribution for each hyper-parameter, how it is sampled, and its points of a grid."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from workbench.search.stream import RandomStream
from workbench.values import dataclass

Hparams = dict[str, Any]
"""Values by name; a nested parameter is a map. Values are plain JSON."""


class Distribution(ABC):
    """The values that one hyper-parameter may have."""

    @abstractmethod
    def sample(self, stream: RandomStream) -> Any:
        """Draw a value."""

    @abstractmethod
    def points(self) -> list[Any]:
        """Return the values that a grid tries.

        Raises:
            ValueError: there are endlessly many, as no count is given.
        """

    def moved(self, value: Any, factor: float, *, up: bool) -> Any:
        """Return a value multiplied by a factor and kept within the bounds; what is not a number stays."""
        return value


@dataclass(frozen=True, slots=True)
class Constant(Distribution):
    """One value."""

    value: Any

    def sample(self, stream: RandomStream) -> Any:
        """Return the value; nothing is drawn."""
        return self.value

    def points(self) -> list[Any]:
        """Return the value alone."""
        return [self.value]


@dataclass(frozen=True, slots=True)
class Categorical(Distribution):
    """One of some values, each as likely."""

    values: tuple[Any, ...]

    def sample(self, stream: RandomStream) -> Any:
        """Draw one."""
        return self.values[stream.whole(0, len(self.values))]

    def points(self) -> list[Any]:
        """Return all of them."""
        return list(self.values)


@dataclass(frozen=True, slots=True)
class Integer(Distribution):
    """A whole number, both ends included."""

    low: int
    high: int
    count: int | None = None
    """How many points a grid has."""

    def sample(self, stream: RandomStream) -> int:
        """Draw one."""
        return stream.whole(self.low, self.high + 1)

    def points(self) -> list[Any]:
        """Return points that lie evenly, at most as many as there are whole numbers."""
        count = min(_given(self.count), self.high - self.low + 1)
        if count == 1:
            return [_rounded((self.low + self.high) / 2)]
        width = self.high - self.low
        return [_rounded(float(self.low) + float(index * width) / (count - 1)) for index in range(count)]

    def moved(self, value: Any, factor: float, *, up: bool) -> int:
        """Round away from the old value, so that a small number moves at all."""
        moved = float(value) * factor
        return min(max(math.ceil(moved) if up else math.floor(moved), self.low), self.high)


@dataclass(frozen=True, slots=True)
class Uniform(Distribution):
    """A number, each as likely."""

    low: float
    high: float
    count: int | None = None

    def sample(self, stream: RandomStream) -> float:
        """Draw one."""
        return stream.uniform(self.low, self.high)

    def points(self) -> list[Any]:
        """Return points that lie evenly."""
        return _spaced(self.low, self.high, self.count)

    def moved(self, value: Any, factor: float, *, up: bool) -> float:
        """Multiply."""
        return min(max(float(value) * factor, self.low), self.high)


@dataclass(frozen=True, slots=True)
class LogUniform(Distribution):
    """A number whose logarithm is uniform: ``base`` to the power of a number between two exponents."""

    low: float
    """The lower exponent."""
    high: float
    base: float = 10.0
    count: int | None = None

    def sample(self, stream: RandomStream) -> float:
        """Draw one."""
        return float(self.base ** stream.uniform(self.low, self.high))

    def points(self) -> list[Any]:
        """Return points whose exponents lie evenly."""
        return [float(self.base**exponent) for exponent in _spaced(self.low, self.high, self.count)]

    def moved(self, value: Any, factor: float, *, up: bool) -> float:
        """Multiply."""
        return min(max(float(value) * factor, float(self.base**self.low)), float(self.base**self.high))


@dataclass(frozen=True, slots=True)
class Space(Distribution):
    """Hyper-parameters by name; as a hyper-parameter of another space it is a nested one."""

    parts: Mapping[str, Distribution]

    def sample(self, stream: RandomStream) -> Hparams:
        """Draw a value for each, in the order of their names."""
        return {name: self.parts[name].sample(stream) for name in sorted(self.parts)}

    def points(self) -> list[Any]:
        """Return every combination, the last name changing first."""
        return list(self.combinations())

    def combinations(self) -> Iterator[Hparams]:
        """Yield every combination, the last name changing first."""
        names = sorted(self.parts)
        for values in itertools.product(*(self.parts[name].points() for name in names)):
            yield dict(zip(names, values, strict=True))

    def point(self, index: int) -> Hparams:
        """Return the combination with an index, from 0, without making the others."""
        found: Hparams = {}
        for name in sorted(self.parts, reverse=True):
            points = self.parts[name].points()
            index, own = divmod(index, len(points))
            found[name] = points[own]
        return dict(sorted(found.items()))

    def size(self) -> int:
        """Return how many points its grid has, without making them."""
        total = 1
        for part in self.parts.values():
            total *= part.size() if isinstance(part, Space) else _point_count(part)
        return total


def _point_count(part: Distribution) -> int:
    match part:
        case Integer(low, high, count):
            return min(_given(count), high - low + 1)
        case Uniform(count=count) | LogUniform(count=count):
            return _given(count)
        case Categorical(values):
            return len(values)
    return 1


def _spaced(low: float, high: float, count: int | None) -> list[Any]:
    points = _given(count)
    if points == 1:
        return [(low + high) / 2.0]
    return [low + float(index) * (high - low) / float(points - 1) for index in range(points)]


def _given(count: int | None) -> int:
    if count is None:
        raise ValueError("has endlessly many values; a grid needs count:")
    return count


def _rounded(number: float) -> int:
    """Round half away from zero."""
    return int(math.copysign(math.floor(abs(number) + 0.5), number))
