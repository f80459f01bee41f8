"""Applies a manifest's expressions for metrics to a log, line by line, and says why a line gives nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from workbench.errors import InputMissing, UnknownName, UsageError
from workbench.formats import short
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.learner.collectors.regex.groups import Group
    from workbench.learner.collectors.regex.windows import RuleMatch
    from workbench.paths import LearnerFolder
    from workbench.spec import EvaluationMetrics

_TRIED_CHARACTERS: Final = 300
"""Of a longer expression only the beginning is tried in parts."""


@dataclass(frozen=True, slots=True)
class ExtractedLine:
    """One line of the log, with what was extracted from it."""

    line: int
    """Its number, from 1."""
    text: str
    group: str = ""
    """The group of expressions that matched; set on the last line of a match."""
    values: Mapping[str, Any] | None = None
    step: float | None = None
    why: str = ""
    """Why nothing was extracted; empty where something was, or where the line is part of a longer match."""


@dataclass(frozen=True, slots=True)
class RecognisedSeries:
    """What the collector ``auto`` finds in a log under one name."""

    name: str
    points: int
    last: float
    steps: tuple[float | None, float | None]
    """Of its first and its last point; None where nothing counts them."""


def recognised_series(data: bytes) -> tuple[tuple[RecognisedSeries, ...], tuple[str, ...]]:
    """Return the series that ``auto`` finds in what a job printed, and its notes, by the code that runs in a job."""
    from workbench.learner.collectors.auto.printed import PrintedNumbers

    printed = PrintedNumbers("auto")
    printed.output(data, len(data), 0)
    printed.finish(0)
    found: dict[str, RecognisedSeries] = {}
    notes: list[str] = []
    for record in printed.take():
        if record["kind"] == "note":
            notes.append(record["text"])
            continue
        group, steps = record["group"], record["steps"]
        for metric, column in record["values"].items():
            name = f"{group}/{metric}" if group else metric
            before = found.get(name)
            count, first = (before.points, before.steps[0]) if before else (0, steps[0])
            last = float("nan") if column[-1] is None else float(column[-1])
            found[name] = RecognisedSeries(name, count + len(column), last, (first, steps[-1]))
    return tuple(found.values()), tuple(notes)


def expressions_of(source: str) -> EvaluationMetrics:
    """Read the expressions of a manifest, or of a preset.

    Raises:
        InputMissing: there is no such manifest.
        UsageError: it has no expressions.
    """
    from workbench.manifest import load_text
    from workbench.manifest.keys.metric_keys import PRESET_NAMES
    from workbench.manifest.yaml.source import read_manifest

    if source in PRESET_NAMES and not Path(source).exists():
        text = f"name: preset\nframework: {{command: 'true'}}\nevaluation_metrics: {{type: {source}}}\n"
    else:
        text = read_manifest(source, None)
    metrics = load_text(text, source, environ={}, defaults={}).spec.evaluation_metrics
    if metrics is None or metrics.type != "regex_extractor" or not metrics.groups:
        found = f"its metrics are of type {metrics.type}" if metrics else "it has no evaluation_metrics"
        raise UsageError(
            f"{source} extracts nothing from lines: {found}",
            hint=f"presets are {', '.join(PRESET_NAMES)}: fabric metrics --try keras train.log",
        )
    return metrics


def learner_folder(job: str) -> LearnerFolder:
    """Return the folder of the first learner of a job's last attempt.

    Raises:
        UnknownName: there is no such job.
    """
    from workbench.services.open_store import store_with

    with store_with(job) as (store, row):
        return store.home.job(row.id).attempt(row.attempt).learner(1)


def printed_bytes(folder: LearnerFolder) -> bytes:
    """Return what a learner printed until now."""
    from workbench.logs.journal import JournalReader

    with JournalReader(folder) as journal:
        return journal.read(0, journal.published())


def log_bytes(log: str) -> bytes:
    """Return the content of a file, or what the first learner of a job's last attempt printed.

    Raises:
        InputMissing: there is no such file, and no such job.
    """
    path = Path(log)
    if path.is_file():
        return path.read_bytes()

    try:
        return printed_bytes(learner_folder(log))
    except UnknownName:
        raise InputMissing(
            f"there is no log {log}", hint="the name of a file, a job, or `-` for stdin"
        ) from None


def dry_run(metrics: EvaluationMetrics, data: bytes) -> Iterator[ExtractedLine]:
    """Yield every line of a log with what is extracted from it, by the code that extracts in a job."""
    groups, cut, hits = _matches(metrics, data)
    texts = [text.decode("utf-8", "replace") for text, _ in cut]
    ends = {end: at for at, (_, end) in enumerate(cut)}
    found: dict[int, ExtractedLine] = {}
    used: set[int] = set()
    for hit in hits:
        last = ends[hit.end]
        used |= {at for end, at in ends.items() if hit.begin < end <= hit.end}
        found[last] = _read(last + 1, texts[last], groups[hit.rule], hit)
    for at, text in enumerate(texts):
        if at in found:
            yield found[at]
        elif at in used:
            yield ExtractedLine(at + 1, text)
        else:
            yield ExtractedLine(at + 1, text, why=_why_not(groups, list(metrics.groups.items()), text))


def extracted_values(metrics: EvaluationMetrics, data: bytes) -> dict[str, list[float]]:
    """Return the values that a manifest's expressions find in a log, by the full names of their series."""
    groups, _, hits = _matches(metrics, data)
    found: dict[str, list[float]] = {}
    for hit in hits:
        group = groups[hit.rule]
        for name, value in group.read(hit.match.groupdict(), 0, "").values.items():
            found.setdefault(f"{group.name}/{name}", []).append(float("nan" if value is None else value))
    return found


def _matches(
    metrics: EvaluationMetrics, data: bytes
) -> tuple[Sequence[Group], Sequence[tuple[bytes, int]], Sequence[RuleMatch]]:
    """Return the groups of expressions, the lines of a log with where each ends, and the matches in it."""
    from workbench.learner.collectors.lines import LineCutter
    from workbench.learner.collectors.regex.groups import Group
    from workbench.learner.collectors.regex.watchdog import Watchdog
    from workbench.learner.collectors.regex.windows import Windows

    groups = [Group(name, asdict(group)) for name, group in metrics.groups.items()]
    windows = Windows([group.rule for group in groups], metrics.line_lookahead, 0)
    cutter = LineCutter(0)
    cut = cutter.feed(data, len(data)) + cutter.finish(len(data))
    with Watchdog() as dog:
        hits: list[RuleMatch] = []
        for text, end in cut:
            hits += windows.push(text.decode("utf-8", "replace") + "\n", end, 0, dog)
        hits += windows.finish(dog)
    return groups, cut, hits


def _read(line: int, text: str, group: Group, hit: RuleMatch) -> ExtractedLine:
    reading = group.read(hit.match.groupdict(), 0, "")
    unreadable = "".join(f"; {name} is not of its type" for name in reading.unreadable)
    values = {**reading.values, **reading.texts}
    etimes = {f"({name})": value for name, value in reading.etimes.items()}
    return ExtractedLine(
        line, text, group.name, {**values, **etimes}, reading.step, unreadable.removeprefix("; ")
    )


def _why_not(groups: Sequence[Group], written: Sequence[tuple[str, Any]], text: str) -> str:
    """Say how far the nearest expression came in a line, and what it wants there."""
    best: tuple[int, str] = (-1, "")
    for group, (name, group_spec) in zip(groups, written, strict=True):
        if later := group.rule.regex.search(text):
            return f"{name} matches from column {later.start() + 1} on, but has to from the first; begin it with .*"
        reached, rest = _longest(str(group_spec.regex), text)
        if reached > best[0]:
            best = (
                reached,
                f"{name} {'comes to column ' + str(reached + 1) + ', then' if reached else ''} wants {rest}",
            )
    return " ".join(best[1].split()) if text.strip() else ""


def _longest(pattern: str, text: str) -> tuple[int, str]:
    """Return how many characters the longest beginning of an expression matches, and what follows in it."""
    for cut, beginning in _beginnings(pattern):
        match = beginning.match(text)
        if match is not None:
            return match.end(), repr(short(pattern[cut:], 40))
    return 0, repr(short(pattern, 40))


@cache
def _beginnings(pattern: str) -> tuple[tuple[int, re.Pattern[str]], ...]:
    """Return the beginnings of an expression that are expressions themselves, the longest first, and their lengths."""
    from workbench.learner.collectors.regex.groups import expand
    from workbench.learner.collectors.regex.prefilter import FLAGS

    found = []
    for cut in range(min(len(pattern) - 1, _TRIED_CHARACTERS), -1, -1):
        if cut and pattern[cut - 1] == "\\":
            continue
        try:
            found.append((cut, re.compile(expand(pattern[:cut]), FLAGS)))
        except (re.error, ValueError, RecursionError, OverflowError):
            continue
    return tuple(found)
