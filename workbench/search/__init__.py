"""Search methods: which hyper-parameters are tried, how far each trial gets, and when one stops.

Everything here is a pure function of a configuration, a seed and the events so far: nothing is read, written,
printed or timed. Replaying the events gives the same operations, so the events are all that has to be kept.
"""

from workbench.search.asha import AdaptiveAsha, AshaPromotion, AshaStopping
from workbench.search.config import SearchConfig
from workbench.search.method import (
    ALL_THE_WAY,
    AskedSearch,
    Create,
    GridSearch,
    MetricMissing,
    Operation,
    RandomSearch,
    RunTo,
    SearchMethod,
    Shutdown,
    StopTrial,
    TrialEnd,
)
from workbench.search.pbt import PopulationSearch
from workbench.search.space import Space
from workbench.search.stream import RandomStream

__all__ = [
    "ALL_THE_WAY",
    "AdaptiveAsha",
    "AshaPromotion",
    "AshaStopping",
    "AskedSearch",
    "Create",
    "GridSearch",
    "MetricMissing",
    "Operation",
    "PopulationSearch",
    "RandomSearch",
    "RandomStream",
    "RunTo",
    "SearchConfig",
    "SearchMethod",
    "Shutdown",
    "Space",
    "StopTrial",
    "TrialEnd",
]
