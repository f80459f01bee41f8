"""Trials that are created before they may run, so that their host goes on with a search by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from workbench.search.config import CONTINUED, SearchConfig
from workbench.store.queries.experiments import TRIALS_AHEAD

if TYPE_CHECKING:
    from workbench.spec import JobSpec
    from workbench.store.db.rows import TargetRef

AHEAD: Final = 100
"""How many trials of a search there are at once beside those that may run: as many as a host takes for their limit."""


def with_trials_ahead(spec: JobSpec, targets: Sequence[TargetRef]) -> tuple[JobSpec, dict[str, Any]]:
    """Return the job of a search as its file has it, and the key that says how many trials are created ahead.

    They wait at its host, which starts them. That takes one host, since the limit holds for all of them, and a
    method whose samples depend on no result.
    """
    from runners.registry import capabilities_of
    from workbench.controller.targets.handover import can_wait_at_host

    config = SearchConfig.from_json(spec.search or {})
    ahead = _count_ahead(config)
    if not ahead or spec.at_most is not None:
        return spec, {}
    if len(targets) != 1 or not can_wait_at_host(targets[0]):
        return spec, {}
    can = capabilities_of(targets[0].runner)
    if can is None or can.needs != "host" or (can.uses_image and spec.image_pull == "always"):
        return spec, {}
    if config.max_concurrent >= sum(config.make_method().outlook(0).values()):
        return spec, {}
    search = {**(spec.search or {}), "max_concurrent": config.max_concurrent + ahead}
    return replace(spec, search=search, at_most=config.max_concurrent), {TRIALS_AHEAD: ahead}


def _count_ahead(config: SearchConfig) -> int:
    """Return how many trials there may be beside those that may run; 0 where each is created when there is room.

    Trials of ``asha`` are stopped by the controller here. While it is away each would train to its end, so there are
    no more of them than may run at once. ``adaptive_asha`` shares its limit out between brackets: with another limit
    its trials would belong to other brackets.
    """
    if config.method in CONTINUED and config.max_concurrent:
        return AHEAD
    if config.method == "asha" and config.variant == "stopping":
        return config.max_concurrent
    return 0


def continued_search(document: Mapping[str, Any], spec: JobSpec) -> dict[str, Any]:
    """Return what the event says with which a search goes on: the search, and how many of its trials may run."""
    search = dict(spec.search or {})
    if not (ahead := document.get(TRIALS_AHEAD, 0)):
        return {"search": search}
    at_once = SearchConfig.from_json(search).max_concurrent
    if not at_once:
        return {"search": search, "at_most": None}
    return {"search": {**search, "max_concurrent": at_once + ahead}, "at_most": at_once}
