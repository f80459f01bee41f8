"""What charts are drawn from: values that a query has read, and no store."""

from __future__ import annotations

from collections.abc import Mapping

from screens.charts.curve import Curve
from screens.charts.plot import STEP, TIME, ChartView
from workbench.values import dataclass


@dataclass(frozen=True, slots=True)
class ChartData:
    """One chart: a metric of all learners of a job, or of several jobs; values are those of what is zoomed into."""

    name: str
    curves: tuple[Curve, ...]
    last: float | None
    least: float | None
    most: float | None
    points: int
    axis: str = STEP
    """What x is: one thing for all points, where not all have what the view asks for."""


@dataclass(frozen=True, slots=True)
class ChartsPage:
    """The charts that are in view, and the names of all that there are."""

    names: tuple[str, ...]
    charts: Mapping[str, ChartData]
    view: ChartView
    """How they were read: a zoomed view has other points."""
    axes: tuple[str, ...] = (STEP, TIME)
    """What x can be."""
