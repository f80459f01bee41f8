"""The rules of ``stop_when`` that need nothing but what a learner reports: when one holds, and that it is stopped then.

The scribe judges what it has written into the journal, so a job is stopped while no controller looks. The controller
judges by the same rules where the agent does not, as that of hosts without Python.
"""

from __future__ import annotations

import contextlib
import json
import math
import os

from workbench.learner.journal import state
from workbench.learner.texts import clean_name

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Iterable, Mapping

    from workbench.learner.journal.launch_document import LaunchDocument

BY = "stop_when: "
"""How the name of a rule begins where a person's stands elsewhere: "halted by stop_when: loss is nan at step 7"."""

WORSE_THAN = "worse_than"

_WORDS = {"inf": math.inf, "-inf": -math.inf}


def is_for_agent(rule: Mapping[str, Any]) -> bool:
    """Say whether a learner's agent can follow a rule: one that compares with no other jobs, and stops something."""
    return WORSE_THAN not in rule and rule.get("then") != "tell"


class StopRule:
    """One rule, and what it has seen of an attempt.

    Args:
        rule: its keys, those of ``manifest.keys.stop_keys``, with its ``goal``.
    """

    def __init__(self, rule: Mapping[str, Any]) -> None:
        self.rule = rule
        self.is_smaller_better = rule.get("goal") != "maximize"
        self.count = 0
        self.sentence = ""
        """Why it holds; empty until it does."""
        self._best: float | None = None
        self._worse = 0
        """How many values in a row were no better than the best."""

    def take(self, value: float | None, step: float | None) -> bool:
        """Take the next value, None for NaN; return whether the rule holds now."""
        self.count += 1
        if self.count <= self.rule.get("after", 0):
            return False
        found = self._holds(math.nan if value is None else value)
        if found:
            at = "" if step is None else f" at step {step:.15g}"
            self.sentence = f"{self.rule['metric']} {found}{at}"
        return bool(found)

    def _holds(self, value: float) -> str:
        rule = self.rule
        if "is" in rule:
            return "is nan" if math.isnan(value) else ""
        if "above" in rule:
            return f"is {value:.6g}, above {rule['above']:g}" if value > rule["above"] else ""
        if "below" in rule:
            return f"is {value:.6g}, below {rule['below']:g}" if value < rule["below"] else ""
        if math.isfinite(value) and (self._best is None or self.is_better(value, self._best)):
            self._best, self._worse = value, 0
            return ""
        self._worse += 1
        if self._worse < rule["no_better_for"]:
            return ""
        than = "no number" if self._best is None else f"no better than {self._best:.6g}"
        return f"was {than} for {self._worse} value{'s' if self._worse > 1 else ''}"

    def is_better(self, value: float, best: float) -> bool:
        """Say whether a value of the metric is better than another."""
        return value < best if self.is_smaller_better else value > best


class LearnerRules:
    """The rules of one learner's launch document, judged by the records of its journal, in their order.

    Args:
        folder: the learner's folder.
        launch: its launch document.
    """

    def __init__(self, folder: str, launch: LaunchDocument) -> None:
        self._folder = folder
        self._launch = launch
        self._watched = [_WatchedSeries(StopRule(rule)) for rule in launch.stop_when]
        self._first: StopRule | None = None
        self._is_asked = False

    def read(self, path: str) -> None:
        """Take the records that a journal holds already: an agent before was killed."""
        with open(path, "rb") as file:
            next(file, None)  # the header
            for line in file:
                with contextlib.suppress(ValueError):
                    self.take((json.loads(line),))

    def take(self, records: Iterable[Any]) -> None:
        """Take the next records; of those that are not what they should be, nothing."""
        for record in records:
            if self._first is None and isinstance(record, dict) and record.get("kind") == "metrics":
                with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
                    self._take_block(record)

    def follow(self) -> None:
        """Ask for the stop that follows from the first rule that held; a request that is there already stays.

        What the disk does not take is asked for by the next call.
        """
        rule = self._first
        if rule is None or self._is_asked:
            return
        request = {
            "kind": "kill" if rule.rule.get("then") == "kill" else "halt",
            "grace_seconds": self._launch.grace_seconds,
            "by": BY + rule.sentence,
        }
        with contextlib.suppress(OSError):
            for folder in self._learner_folders():
                if not state.is_stop(folder):
                    state.ask_to_stop(folder, request)
            self._is_asked = True

    def _learner_folders(self) -> list[str]:
        """Return the folders of all learners of the attempt, this one's first."""
        beside = [
            state.learner_folder(self._launch, number)
            for number in range(1, self._launch.learners + 1)
            if number != self._launch.learner
        ]
        return [self._folder, *filter(os.path.isdir, beside)]

    def _take_block(self, record: dict[str, Any]) -> None:
        """Take a block of points: column by column for each rule, since they are judged apart."""
        if record.get("learner", self._launch.learner) != self._launch.learner:
            return
        rows = len(record["times"])
        steps = record.get("steps") or [None] * rows
        prefix = "".join(
            "%s/" % clean_name(str(part)) for part in (record.get("group"), record.get("subid")) if part
        )
        held: list[tuple[int, int, StopRule]] = []
        for order, watched in enumerate(self._watched):
            cells = watched.column(record, prefix)
            if len(cells) != rows or len(steps) != rows:
                continue
            for row, (cell, step) in enumerate(zip(cells, steps)):  # noqa: B905 - Python 3.8; of one length
                if _is_number(cell) and watched.rule.take(_number(cell), step):
                    held.append((row, order, watched.rule))
                    break
        if held:
            self._first = min(held)[2]


class _WatchedSeries:
    """A rule, and which series its metric is: the first one reported whose name it is, whole or by its last part."""

    def __init__(self, rule: StopRule) -> None:
        self.rule = rule
        self._series: tuple[str, str] | None = None

    def column(self, record: dict[str, Any], prefix: str) -> list[Any]:
        """Return the values of the metric in a block, empty where there are none."""
        if self._series is None:
            self._series = self._find(record, prefix)
        kind, name = self._series or ("", "")
        for key, cells in (record.get(kind) or {}).items():
            if prefix + clean_name(key) == name:
                return list(cells)
        return []

    def _find(self, record: dict[str, Any], prefix: str) -> tuple[str, str] | None:
        wanted = self.rule.rule["metric"]
        for kind in ("values", "etimes"):
            names = [prefix + clean_name(key) for key in record.get(kind) or {}]
            found = [name for name in names if name == wanted or name.endswith("/" + wanted)]
            if found:
                return kind, min(found, key=len)
        return None


def _is_number(cell: Any) -> bool:
    """Say whether a cell of a column is a number: the others are texts that a collector found among them."""
    return cell in _WORDS if isinstance(cell, str) else cell is None or isinstance(cell, (int, float))


def _number(cell: Any) -> float | None:
    """Return a number of a column, None for NaN."""
    return cell if cell is None else _WORDS[cell] if isinstance(cell, str) else float(cell)
