"""Scores the collector ``auto`` on logs of real programs.

``python -m tests.quick.metrics.corpus_score`` prints the table.

Beside each log stands what a person wants of it: the names of the series, each with an expression, written by hand
from the log, whose group is its values in order. The expressions say nothing of how the collector reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CORPUS: Final = Path(__file__).parent / "corpus"


@dataclass
class Score:
    """How many series and points are wanted, found, and both."""

    logs: int = 0
    wanted: int = 0
    found: int = 0
    right: int = 0
    wanted_points: int = 0
    found_points: int = 0
    right_points: int = 0

    def add(self, other: Score) -> None:
        """Add another's counts."""
        for name, count in vars(other).items():
            setattr(self, name, getattr(self, name) + count)

    @property
    def ratios(self) -> tuple[float, float, float, float]:
        """Recall and precision of series, then of points."""
        return (
            self.right / max(1, self.wanted),
            self.right / max(1, self.found),
            self.right_points / max(1, self.wanted_points),
            self.right_points / max(1, self.found_points),
        )


def plain(name: str) -> str:
    """Return a name without case and separators."""
    return "".join(c for c in name.lower() if c.isalnum())


def wanted_of(log: Path) -> dict[str, list[float]]:
    """Return the values of each series that a person wants."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", log.read_text(encoding="utf-8"))
    lines = re.split(r"[\r\n\b]+", text)
    document = json.loads(log.with_suffix(".json").read_text(encoding="utf-8"))
    if "state" in document:  # a state of a bar may be printed twice
        states = {
            (hit.groups() if (hit := re.search(document["state"], line)) else line): line for line in lines
        }
        lines = list(states.values())
    series = document["series"]
    return {
        plain(name): [
            float(hit[1].replace(",", "").rstrip("."))
            for line in lines
            if (hit := re.search(expression, line))
        ]
        for name, expression in series.items()
    }


def found_of(log: Path) -> dict[str, list[float]]:
    """Return the values of each series that the collector finds."""
    from workbench.learner.collectors.auto.printed import PrintedNumbers

    data = log.read_bytes()
    printed = PrintedNumbers("auto")
    printed.output(data, len(data), 0)
    printed.finish(0)
    found: dict[str, list[float]] = {}
    for record in printed.take():
        for name, column in record.get("values", {}).items():
            values = (float("nan") if value is None else float(value) for value in column)
            found.setdefault(plain(f"{record['group']}/{name}"), []).extend(values)
    return found


def score_of(log: Path) -> Score:
    """Score one log: a point is right where its value stands at the same place among those of its series."""
    wanted, found = wanted_of(log), found_of(log)
    both = wanted.keys() & found.keys()
    right = sum(_alike(wanted[name], found[name]) for name in both)
    return Score(
        1,
        len(wanted),
        len(found),
        len(both),
        sum(map(len, wanted.values())),
        sum(map(len, found.values())),
        right,
    )


def _alike(wanted: list[float], found: list[float]) -> int:
    """Return how many values two series share in their order."""
    before = [0] * (len(found) + 1)
    for value in wanted:
        row = [0]
        for at, other in enumerate(found):
            is_same = abs(value - other) <= 1e-9 * max(1.0, abs(value))
            row.append(before[at] + 1 if is_same else max(before[at + 1], row[at]))
        before = row
    return before[-1]


def logs() -> Iterator[tuple[Path, bool]]:
    """Yield each log and whether it was held out while the collector was written."""
    for log in sorted(CORPUS.glob("*/*.log")):
        yield log, json.loads(log.with_suffix(".json").read_text(encoding="utf-8"))["held_out"]


def table() -> str:
    """Return the scores as a table of Markdown."""
    scores = {"tuned with": Score(), "held out": Score(), "all": Score()}
    for log, is_held_out in logs():
        score = score_of(log)
        scores["held out" if is_held_out else "tuned with"].add(score)
        scores["all"].add(score)
    lines = [
        "| logs | | series: recall | precision | points: recall | precision |",
        "|---|---|---|---|---|---|",
    ]
    for name, score in scores.items():
        ratios = " | ".join(f"{ratio:.3f}" for ratio in score.ratios)
        lines.append(f"| {name} | {score.logs} | {ratios} |")
    return "\n".join(lines)


if __name__ == "__main__":
    for each, _ in logs():
        one = score_of(each)
        if one.wanted and one.ratios != (1.0, 1.0, 1.0, 1.0):
            print(each.stem, one, set(wanted_of(each)) ^ set(found_of(each)))
    print(table())
