"""In which order workers take the modules of tests, so that all of them are busy to the end.

pytest-xdist gives each worker one module after the other (``--dist=loadfile``), in the order in which they were
collected. A module that takes minutes must not be the last one; and while some workers wait for pods, others should
have tests that use the processors. So the modules of each folder are spread over the whole run, its long ones first,
by the seconds that they took in the last run of the gate on this machine.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

import pytest

from tests.gate.record import folder_of, read_seconds

KEY: Final = "module_seconds"
"""Where each worker finds the seconds: all of them have to collect in the same order."""
USUAL_SECONDS: Final = 0.4
"""What a test takes of a folder that nothing is known of."""


class Worker(Protocol):
    """A worker, as pytest-xdist has it, which has no types."""

    workerinput: dict[str, Any]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Worker) -> None:
    """Give a worker the seconds that modules took."""
    node.workerinput[KEY] = read_seconds()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the modules into their order, where several workers take them."""
    taken: Any = getattr(config, "workerinput", {}).get(KEY)
    if taken is None:
        return
    places = {module: place for place, module in enumerate(spread(estimate(map(module_of, items), taken)))}
    items.sort(key=lambda item: places[module_of(item)])


def module_of(item: pytest.Item) -> str:
    """Return the module of a test, as reports name it."""
    return item.nodeid.partition("::")[0]


def estimate(tests: Iterable[str], taken: Mapping[str, float]) -> dict[str, float]:
    """Return how long each module may take: as long as it took, else as other tests of its folder."""
    counts = Counter(tests)
    known: dict[str, list[float]] = defaultdict(list)
    for module, count in counts.items():
        if module in taken:
            known[folder_of(module)] += [taken[module] / count] * count
    each = {folder: sum(seconds) / len(seconds) for folder, seconds in known.items()}
    return {
        module: taken.get(module, count * each.get(folder_of(module), USUAL_SECONDS))
        for module, count in counts.items()
    }


def spread(seconds: Mapping[str, float]) -> list[str]:
    """Order modules: of each folder the long ones first, and at any time as much of it is done as of the others."""
    folders: dict[str, list[str]] = defaultdict(list)
    for module in sorted(seconds, key=lambda module: (-seconds[module], module)):
        folders[folder_of(module)].append(module)
    begins: dict[str, float] = {}
    for modules in folders.values():
        whole, done = sum(seconds[module] for module in modules) or 1.0, 0.0
        for module in modules:
            begins[module] = done / whole
            done += seconds[module]
    return sorted(seconds, key=lambda module: (begins[module], -seconds[module], module))
