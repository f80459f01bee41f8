"""A pytest plugin that writes what came of each test into the file that ``FABRIC_TEST_RECORD`` names.

The variable is taken out of the environment, so that neither workers nor tests that run pytest write there, too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    import pytest

VARIABLE: Final = "FABRIC_TEST_RECORD"
SECONDS: Final = "seconds.json"
"""The file in :func:`cache_folder` that says how many seconds each module of tests took in the last run of the gate."""
Outcome = Literal["passed", "failed", "skipped"]


def cache_folder() -> Path:
    """Return the folder in the user's cache that runs of the gate are recorded in."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "fabric-gate"


def folder_of(module: str) -> str:
    """Return the folder of tests that a module lies in; nothing for one that lies in none."""
    return module.removeprefix("tests/").rpartition("/")[0].partition("/")[0]


def read_seconds() -> dict[str, float]:
    """Return how long each module took in the last run of the gate here; nothing where there was none."""
    try:
        found = json.loads((cache_folder() / SECONDS).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


@dataclass(slots=True)
class Record:
    """What came of the tests of one run of pytest."""

    exit_status: int = -1
    """What pytest exits with; 1 means that tests failed and nothing else went wrong."""
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    """By node id. A test whose set-up or teardown failed is a failed one."""
    errors: dict[str, str] = field(default_factory=dict)
    """The first traceback of each failed test, by node id."""
    excused: dict[str, str] = field(default_factory=dict)
    """The traceback of each test that failed and is marked ``unsteady``, by node id."""
    seconds: dict[str, float] = field(default_factory=dict)
    """How long the tests of each module took, with set-up and teardown, added up over all workers."""

    def of(self, outcome: Outcome) -> list[str]:
        """Return the node ids of the tests with this outcome."""
        return [test for test, its in self.outcomes.items() if its == outcome]

    @classmethod
    def read(cls, file: Path) -> Record | None:
        """Read a record; None when pytest never came to its end, or did not start."""
        try:
            held: Mapping[str, object] = json.loads(file.read_text())
        except (OSError, ValueError):
            return None
        return cls(**held)  # type: ignore[arg-type]


class Recorder:
    """Collects the reports of a run, those of xdist's workers included."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.record = Record()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Take a file that cannot be collected for a failed test."""
        if report.failed:
            self._fail(report.nodeid, report.longreprtext)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the set-up, call or teardown of one test."""
        module = report.nodeid.partition("::")[0]
        self.record.seconds[module] = self.record.seconds.get(module, 0.0) + report.duration
        if report.skipped and hasattr(report, "wasxfail"):
            self.record.excused[report.nodeid] = report.longreprtext
        if report.failed:
            self._fail(report.nodeid, report.longreprtext)
        elif report.skipped:
            self.record.outcomes.setdefault(report.nodeid, "skipped")
        elif report.when == "call":
            self.record.outcomes.setdefault(report.nodeid, "passed")

    def _fail(self, test: str, error: str) -> None:
        self.record.outcomes[test] = "failed"
        self.record.errors.setdefault(test, error)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write the record."""
        self.record.exit_status = int(exitstatus)
        self.file.write_text(json.dumps(asdict(self.record)))


def pytest_configure(config: pytest.Config) -> None:
    """Record this run when it is asked for."""
    if not hasattr(config, "workerinput") and (file := os.environ.pop(VARIABLE, None)):
        config.pluginmanager.register(Recorder(Path(file)), "gate-recorder")
