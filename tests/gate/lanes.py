"""Which tests a run takes: the quick ones, those of the gate, or those of the soak; and what the soak says at its end.

* ``quick`` tests need no process of fabric, no engine, no host and no screen. They are those of ``tests/quick`` and
  ``tests/project``: the folder that a test lies in decides, and nothing else.
* The gate is what runs by default: every behaviour once, on real parts.
* ``@pytest.mark.soak("why")`` keeps a test out of the gate: ``pytest -m soak`` (``make soak``) runs it. A test may be
  marked as a function, class, module or parameter.
* ``@pytest.mark.unsteady("what is known")`` is for a test that fails by chance and cannot be mended today: it runs, its
  failure is printed, and fails nothing. CONTRIBUTING.md lists them.
* ``@pytest.mark.chaos`` tests do rounds of random harm. The gate does few, with fixed seeds; the soak does many.

A round of harm calls the fixture ``note_harm`` with the kind of harm, and the soak prints how many there were.
A class of a shared suite names those of its tests that the gate runs as ``in_gate``, and as ``why_soak`` what the gate
has instead of the others.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import pytest

QUICK_FOLDERS: Final = ("quick", "project")
"""The folders whose tests are quick: ``tests/quick`` for all that fabric does, ``tests/project`` for the source tree.

``tests/project`` lies apart since programs of it are run by that name: ``python -m tests.project.structure``.
"""
SOAK_ROUNDS: Final = 10
"""How many rounds each test of harm does in the soak, unless ``--chaos-rounds`` says otherwise."""
ROUND_SECONDS: Final = 60
"""How long a round of harm may take where more rounds are asked for than a test does by itself."""
SKIPPED: Final = "soak: "
"""How the reason of a test begins that the gate leaves to the soak; ``.ci/run`` allows it."""
EXAMPLES: Final = 100
"""How many examples a property test has that does not ask :func:`examples`, or name a number."""
GATE_PART: Final = 4
"""The gate tries one of so many of a property test's examples."""
HARM: Final = "harm"
"""The property of a test's report that holds the kind of harm of one round."""

_lane: dict[str, bool] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--chaos-rounds",
        type=int,
        default=None,
        help=f"how many rounds each test of harm does (default: few, fixed seeds; in the soak {SOAK_ROUNDS})",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Note the lane for :func:`examples`, which modules ask as they are read, and for property tests that do not."""
    _lane["soak"] = is_soak(config)
    # Where nobody has imported it there is no property test, and it takes long.
    if "hypothesis" in sys.modules:
        from hypothesis import settings

        settings.register_profile("lane", settings.default, max_examples=examples(EXAMPLES))
        settings.load_profile("lane")


def is_soak(config: pytest.Config) -> bool:
    """Say whether this run asks for the soak."""
    return re.search(r"(?<!not )\bsoak\b", config.option.markexpr) is not None


def examples(count: int) -> int:
    """Return how many of a property test's examples this run tries: all of them in the soak."""
    return count if _lane.get("soak") else -(-count // GATE_PART)


def rounds_of(config: pytest.Config) -> int | None:
    """Return how many rounds were asked for; None leaves it to the test."""
    asked: int | None = config.getoption("--chaos-rounds")
    return SOAK_ROUNDS if asked is None and is_soak(config) else asked


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the quick tests, leave those of the soak out of other runs, and give rounds the time that they need."""
    soak, rounds = is_soak(config), rounds_of(config)
    tests = Path(__file__).parents[1]
    for item in items:
        if rounds and "chaos_rounds" in getattr(item, "fixturenames", ()):
            limit = item.get_closest_marker("timeout")
            item.add_marker(
                pytest.mark.timeout(max(rounds * ROUND_SECONDS, limit.args[0] if limit else 0)), append=False
            )
        if soak and item.get_closest_marker("chaos"):
            item.add_marker(pytest.mark.soak("rounds of harm"))
        if soak and getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.soak("all examples of a property test"))
        if known := item.get_closest_marker("unsteady"):
            item.add_marker(pytest.mark.xfail(reason=f"unsteady: {known.args[0]}", strict=False))
        if why := _left_of_its_suite(item):
            item.add_marker(pytest.mark.soak(why))
        asked_for = soak or (rounds and item.get_closest_marker("chaos"))
        if (left := item.get_closest_marker("soak")) and not asked_for:
            item.add_marker(pytest.mark.skip(reason=f"{SKIPPED}{left.args[0]} (pytest -m soak)"))
        if any(item.path.is_relative_to(tests / folder) for folder in QUICK_FOLDERS):
            item.add_marker(pytest.mark.quick)


def _left_of_its_suite(item: pytest.Item) -> str:
    """Say what the gate has instead of a test of a shared suite; nothing where the gate runs it."""
    if not isinstance(item, pytest.Function) or (kept := getattr(item.cls, "in_gate", None)) is None:
        return ""
    return "" if {item.name, item.originalname} & set(kept) else str(item.cls.why_soak)


@pytest.fixture
def chaos_rounds(request: pytest.FixtureRequest) -> int | None:
    """How many rounds were asked for; None leaves it to the test."""
    return rounds_of(request.config)


@pytest.fixture
def note_harm(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Give a function that notes one round of the kind of harm that it is called with."""
    properties: list[tuple[str, object]] = request.node.user_properties
    return lambda kind: properties.append((HARM, kind))


def harms_of(reports: Iterable[object]) -> Counter[str]:
    """Count the rounds that tests noted, by kind of harm."""
    return Counter(
        str(kind)
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, kind in report.user_properties
        if name == HARM
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the rounds and the harm of this run, when there was any; the soak's findings are its failed tests."""
    harms = harms_of(report for reports in terminalreporter.stats.values() for report in reports)
    if not harms or not (is_soak(config) or rounds_of(config)):
        return
    terminalreporter.section("rounds of harm")
    for kind, count in sorted(harms.items()):
        terminalreporter.line(f"{count:6} {kind}")
    findings = len(terminalreporter.stats.get("failed", ())) + len(terminalreporter.stats.get("error", ()))
    terminalreporter.line(f"{harms.total()} rounds of harm, {len(harms)} kinds, {findings} findings")
