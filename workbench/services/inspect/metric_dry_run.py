"""Applies a manifest's expressions for metrics to a log, line by line, and says why a line gives nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import InputMissing, UsageError
from workbench.formats import short

if TYPE_CHECKING:
    from workbench.learner.collectors.regex.groups import Group
    from workbench.learner.collectors.regex.windows import RuleMatch
    from workbench.spec import EvaluationMetrics


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


def log_bytes(log: str) -> bytes:
    """Return the content of a file, or what the first learner of a job's last attempt printed.

    Raises:
        InputMissing: there is no such file, and no such job.
    """
    path = Path(log)
    if path.is_file():
        return path.read_bytes()
    from workbench.errors import UnknownName
    from workbench.logs.journal import JournalReader
    from workbench.services.open_store import store_with

    try:
        with store_with(log) as (store, row):
            folder = store.home.job(row.id).attempt(row.attempt).learner(1)
            with JournalReader(folder) as journal:
                return journal.read(0, journal.published())
    except UnknownName:
        raise InputMissing(
            f"there is no log {log}", hint="the name of a file, a job, or `-` for stdin"
        ) from None


def dry_run(metrics: EvaluationMetrics, data: bytes) -> Iterator[ExtractedLine]:
    """Yield every line of a log with what is extracted from it, by the code that extracts in a job."""
    from dataclasses import asdict

    from workbench.learner.collectors.lines import LineCutter
    from workbench.learner.collectors.regex.groups import Group
    from workbench.learner.collectors.regex.watchdog import Watchdog
    from workbench.learner.collectors.regex.windows import Windows

    groups = [Group(name, asdict(group)) for name, group in metrics.groups.items()]
    windows = Windows([group.rule for group in groups], metrics.line_lookahead, 0)
    cutter = LineCutter(0)
    cut = cutter.feed(data, len(data)) + cutter.finish(len(data))
    texts = [text.decode("utf-8", "replace") for text, _ in cut]
    ends = {end: at for at, (_, end) in enumerate(cut)}
    found: dict[int, ExtractedLine] = {}
    used: set[int] = set()
    with Watchdog() as dog:
        hits: list[RuleMatch] = []
        for (_, end), text in zip(cut, texts, strict=True):
            hits += windows.push(text + "\n", end, 0, dog)
        hits += windows.finish(dog)
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
    from workbench.learner.collectors.regex.groups import expand
    from workbench.learner.collectors.regex.prefilter import FLAGS

    for cut in range(len(pattern) - 1, -1, -1):
        if cut and pattern[cut - 1] == "\\":
            continue
        try:
            match = re.compile(expand(pattern[:cut]), FLAGS).match(text)
        except (re.error, ValueError, RecursionError, OverflowError):
            continue
        if match is not None:
            return match.end(), repr(short(pattern[cut:], 40))
    return 0, repr(short(pattern, 40))
