"""Writes the ``evaluation_metrics`` that read from a log what ``auto`` recognises in it, to keep or to mend."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from workbench.errors import InputMissing
from workbench.learner.collectors.auto.files.found import OWNERS
from workbench.learner.collectors.auto.files.series import Owners, joined
from workbench.learner.collectors.auto.line_values import LineValues, cleaned, line_values
from workbench.learner.collectors.auto.names import kind_of
from workbench.learner.collectors.auto.printed import LineShapes, PrintedNumbers
from workbench.learner.collectors.lines import LineCutter
from workbench.learner.journal.launch_document import AUTO
from workbench.metrics.records import read_records
from workbench.services.inspect.metric_dry_run import extracted_values, learner_folder, printed_bytes
from workbench.values import dataclass

UNNAMED: Final = "printed"
"""The group of series that ``auto`` gives no group: in a manifest each has a name."""

_LINES: Final = "lines"
_FILE_KINDS: Final = (
    "TensorBoard's event files",
    "metrics.csv of Lightning",
    "trainer_state.json of the Trainer",
    "tables (CSV, JSON lines)",
    "wandb's offline runs",
    "MLflow's file store",
    "trackio's database",
)
"""Kinds of files, in the order of the numbers that the collector gives them."""
_RECORDS_BYTES: Final = 4 << 20
_BEGINNINGS: Final = 6
"""Lines of one group may begin in so many ways; more are not a sign of it."""
_BEGINNING_CHARACTERS: Final = 160
_CONTEXT_CHARACTERS: Final = 40
_BEFORE_CHARACTERS: Final = 12
_NUMBER: Final = re.compile(r"\d[\d.,:]*")
_DIGITS: Final = r"\d[\d.,:]*"
_COUNTS: Final = ("step", "epoch")


@dataclass
class _Group:
    """What the lines of one group have in common."""

    beginnings: dict[str, None] = field(default_factory=dict)
    contexts: dict[str, dict[str, None]] = field(default_factory=dict)
    """By the name of each series: what stands before its values."""
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    """By ``step`` and ``epoch``: what stands before a number that is it, and in how many lines."""


def extractor_manifest(data: bytes) -> str:
    """Return a part of a manifest that finds the series of a log; comments name what it does not find the same.

    Raises:
        InputMissing: nothing is recognised in the log.
    """
    wanted = _recognised(data)
    if not wanted:
        raise InputMissing(
            "no metrics are recognised in what was printed",
            hint="`evaluation_metrics: {type: auto}`, the default, also reads files that libraries write",
        )
    groups = _groups(data, wanted)
    body = "".join(_group_text(name, group) for name, group in _in_order(groups))
    text = "evaluation_metrics:\n  type: regex_extractor\n  line_lookahead: 1\n  groups:\n" + body
    found = _found(text, data) if body else {}
    comments = "".join(f"# {line}\n" for line in _differences(wanted, found))
    return comments + (text if body else "evaluation_metrics:\n  type: auto\n")


def job_manifest(job: str) -> str:
    """Return a part of a manifest that finds the series of a job; comments name what comes from where.

    Only ``auto`` reads every kind of file that libraries write, so series of files keep it.

    Raises:
        InputMissing: nothing was recognised in what it wrote and printed.
        UnknownName: there is no such job.
    """
    folder = learner_folder(job)
    by_kind = file_series(folder.records)
    if not by_kind:
        return extractor_manifest(printed_bytes(folder))
    lines = [f"{kind}: {', '.join(names)}" for kind, names in by_kind.items() if kind != _LINES]
    if _LINES in by_kind:
        lines.append(f"printed: {', '.join(by_kind[_LINES])}; expressions that read these lines alone:")
        lines.append(f"  fabric metrics --try auto {job or '@last'} --as-manifest")
    elif list(by_kind) == [_FILE_KINDS[0]]:
        lines.append("`type: tensorboard` reads event files alone, and names series by the files' folders")
    return "".join(f"# {line}\n" for line in lines) + "evaluation_metrics:\n  type: auto\n"


def file_series(records: Path) -> dict[str, list[str]]:
    """Return the series that ``auto`` found for a learner, by the kind of file, or ``lines``.

    Empty where no file gave one.
    """
    names: dict[str, None] = {}
    document: Any = None
    offset = 0
    while (batch := read_records(records, offset, limit_bytes=_RECORDS_BYTES)).end > offset:
        offset = batch.end
        for record in batch.records:
            if record.get("source") != AUTO or record.get("kind") != "metrics":
                continue
            names.update((joined(record["group"], name), None) for name in record["values"])
            document = _owners_in(record) or document
    owners = Owners(document)
    found: dict[str, list[str]] = {}
    for name in names:
        run = "" if owners.is_printed(name) else owners.owner(name)
        rank = run.partition(".")[0]
        found.setdefault(_FILE_KINDS[int(rank)] if rank.isdigit() else _LINES, []).append(name)
    return {} if list(found) == [_LINES] else dict(sorted(found.items(), key=lambda item: item[0] == _LINES))


def _owners_in(record: Mapping[str, Any]) -> Any:
    """Return what the cursor of a record says of who gives each series; None where it says nothing."""
    cursor: Any = record.get("cursor")
    for key in ("files", "at", OWNERS):
        cursor = cursor.get(key) if isinstance(cursor, dict) else None
    return cursor


def manifest_name(series: str) -> str:
    """Return what a series that ``auto`` finds is called where a manifest's group gives it."""
    return series if "/" in series else f"{UNNAMED}/{series}"


def _recognised(data: bytes) -> dict[str, list[float]]:
    """Return the values of each series that ``auto`` finds, by the name that it gets in a manifest."""
    printed = PrintedNumbers("auto")
    printed.output(data, len(data), 0)
    printed.finish(0)
    found: dict[str, list[float]] = {}
    for record in printed.take():
        for metric, column in record.get("values", {}).items():
            name = f"{record['group']}/{metric}" if record["group"] else metric
            values = (float("nan" if value is None else value) for value in column)
            found.setdefault(manifest_name(name), []).extend(values)
    return found


def _groups(data: bytes, wanted: Mapping[str, object]) -> dict[str, _Group]:
    """Return what stands around the values of the recognised series, by group."""
    shapes = LineShapes()
    groups: dict[str, _Group] = {}
    for written in _lines(data):
        text = cleaned(written)
        shapes.take(text, 0)
        if _add_row(groups, shapes, text, wanted):
            continue
        read = line_values(text)
        if read is None or not read.values or read.is_partial:
            continue
        read = shapes.apart(read)
        if not read.spans:
            _add_keys(groups, read, wanted)
        places = [
            (manifest_name(f"{read.group}/{name}" if read.group else name), name, begin, end)
            for name, begin, end in read.spans
        ]
        places = [place for place in places if place[0] in wanted]
        first = len(text)
        before = 0
        for full, name, begin, end in places:
            key = _key_begin(text, name, before, begin)
            first, before = min(first, key), end
            prefix, _, short = full.rpartition("/")
            group = groups.setdefault(prefix, _Group())
            start = _context_begin(text, key)
            # At the beginning of a line the same name may stand behind another in other lines.
            any_text = "" if start == 0 and text == written else "[^\\n]*?"
            context = any_text + _literal(text[start:begin], bounded=start == key)
            group.contexts.setdefault(short, {})[context] = None
        for full, *_ in places[:1]:
            # Signs that control the terminal stand in the line that expressions see.
            beginning = text[:first] if text == written else ""
            _add_line(groups[full.rpartition("/")[0]], text, beginning, read)
    return groups


def _add_row(groups: dict[str, _Group], shapes: LineShapes, text: str, wanted: Mapping[str, object]) -> bool:
    """Take a row below a header; return whether it is one."""
    if not shapes.is_row(text):
        return False
    names, separator = shapes.columns
    cell, end = (r"\S+", "[ \\t]+") if separator == " " else (f"[^{separator}\\n]*", re.escape(separator))
    lead = "[ \\t]*" if separator == " " else r"[ \t|]*"
    row = f"(?={lead}(?:{cell}{end}){{{len(names) - 1}}}{cell}[ \\t|]*$)"
    for index, name in enumerate(names):
        context = f"{row}{lead}(?:{cell}{end}){{{index}}}[ \\t]*"
        if (full := manifest_name(name)) in wanted:
            prefix, _, short = full.rpartition("/")
            groups.setdefault(prefix, _Group()).contexts.setdefault(short, {})[context] = None
        elif kind_of(name) in _COUNTS:
            for group in groups.values():
                group.counts.setdefault(kind_of(name), {})["^" + context] = 1
    return True


def _add_keys(groups: dict[str, _Group], read: LineValues, wanted: Mapping[str, object]) -> None:
    """Take a line of JSON, in which a key stands before each value."""
    for name, _ in read.values:
        full = manifest_name(f"{read.group}/{name}" if read.group else name)
        if full in wanted:
            prefix, _, short = full.rpartition("/")
            key = re.escape(json.dumps(name.rpartition("/")[2], ensure_ascii=False))
            group = groups.setdefault(prefix, _Group())
            group.contexts.setdefault(short, {})[f'[^\\n]*?{key}[ \\t]*:[ \\t]*"?'] = None
            for kind in _COUNTS:
                group.counts.setdefault(kind, {})[f'[^\\n]*?"{kind}"[ \\t]*:[ \\t]*"?'] = 1


def _lines(data: bytes) -> Iterator[str]:
    cutter = LineCutter(0)
    for text, _end in [*cutter.feed(data, len(data)), *cutter.finish(len(data))]:
        yield text.decode("utf-8", "replace")


def _key_begin(text: str, name: str, begin: int, end: int) -> int:
    """Return where the name of a number begins that stands at ``end``, or the text before it without digits."""
    last = re.split(r"[_/ ]", name)[-1]
    for written in (name, name.replace("_", " "), last):
        at = text.rfind(written, begin, end) if written else -1
        if at >= 0:
            return at
    tail = re.search(r"[^\d]*$", text[max(begin, end - _CONTEXT_CHARACTERS) : end])
    return end - len(tail.group()) if tail else end


def _context_begin(text: str, key: int) -> int:
    """Return where the text without digits begins that tells a name from the same one elsewhere."""
    begin = key
    while begin > max(0, key - _BEFORE_CHARACTERS) and not text[begin - 1].isdigit():
        begin -= 1
    return begin


def _add_line(group: _Group, text: str, beginning: str, read: LineValues) -> None:
    if len(beginning) <= _BEGINNING_CHARACTERS and len(group.beginnings) <= _BEGINNINGS:
        parts = _NUMBER.split(beginning)
        group.beginnings[_DIGITS.join(_literal(part, bounded=False) for part in parts)] = None
    for kind, value in zip(_COUNTS, (read.step, read.epoch), strict=True):
        if value is None:
            continue
        counts = group.counts.setdefault(kind, {})
        for found in re.finditer(r"\d+(?:\.\d+)?", text):
            if float(found.group()) == float(value):
                tail = re.search(
                    r"[^\d\n]*$", text[max(0, found.start() - _CONTEXT_CHARACTERS) : found.start()]
                )
                context = _literal(tail.group() if tail else "")
                context = (
                    context
                    if found.start() > _CONTEXT_CHARACTERS or not _at_start(text, found)
                    else "^" + context
                )
                counts[context] = counts.get(context, 0) + 1


def _at_start(text: str, found: re.Match[str]) -> bool:
    return not re.search(r"\d", text[: found.start()])


def _literal(text: str, *, bounded: bool = True) -> str:
    """Return an expression for a text: any blanks for blanks, and nothing of a longer word before it."""
    words = [re.escape(word) for word in re.split(r"[ \t]+", text)]
    joined = r"[ \t]+".join(words)
    return r"(?<![\w./@-])" + joined if bounded and text[:1].isalnum() else joined


def _in_order(groups: Mapping[str, _Group]) -> list[tuple[str, _Group]]:
    """Return groups whose lines begin in a way of their own before the others: the first that matches has a line."""
    return sorted(groups.items(), key=lambda item: -min(map(len, item[1].beginnings), default=0))


def _group_text(name: str, group: _Group) -> str:
    contexts = [context for each in group.contexts.values() for context in each]
    gate = "(?=" + _any_of(contexts) + "%{FLOAT})"
    if 0 < len(group.beginnings) <= _BEGINNINGS and all(group.beginnings):
        gate = "(?=" + _any_of(group.beginnings) + ")" + gate
    binds = {metric: f"v{index}" for index, metric in enumerate(group.contexts, 1)}
    regex = gate + "".join(
        f"(?={_any_of(group.contexts[metric])}%{{FLOAT:{bind}}}|)" for metric, bind in binds.items()
    )
    times = ""
    for kind, counts in group.counts.items():
        context = max(counts, key=lambda each: counts[each], default="")
        if context:
            start = context[1:] if context.startswith("^") or "[^" in context else "[^\\n]*?" + context
            regex += f"(?={start}%{{FLOAT:{kind}}}|)"
            times += f"        {kind}: {{type: FLOAT, value: ${kind}}}\n"
    scalars = "".join(
        f"        {json.dumps(metric, ensure_ascii=False)}: {{type: FLOAT, value: ${bind}}}\n"
        for metric, bind in binds.items()
    )
    quoted = "'" + regex.replace("'", "''") + "'"
    etimes = f"      etimes:\n{times}" if times else ""
    return f"    {json.dumps(name, ensure_ascii=False)}:\n      regex: {quoted}\n      scalars:\n{scalars}{etimes}"


def _any_of(texts: Sequence[str] | Mapping[str, object]) -> str:
    each = list(dict.fromkeys(texts))
    return each[0] if len(each) == 1 else "(?:" + "|".join(each) + ")"


def _found(text: str, data: bytes) -> dict[str, list[float]]:
    from workbench.manifest import load_text

    whole = f"name: printed\nframework: {{command: 'true'}}\n{text}"
    metrics = load_text(whole, "printed", environ={}, defaults={}).spec.evaluation_metrics
    assert metrics is not None, "it was just written"
    return extracted_values(metrics, data)


def _differences(wanted: Mapping[str, list[float]], found: Mapping[str, list[float]]) -> Iterator[str]:
    """Say how what the expressions find differs from what ``auto`` finds."""
    if any(name.startswith(f"{UNNAMED}/") for name in wanted):
        yield f"groups have names: what auto calls loss is {UNNAMED}/loss here"
    missing = [name for name in wanted if name not in found]
    if missing:
        yield f"expressions do not say (columns, tables, lines of several parts): {', '.join(missing)}"
    other = [
        f"{name} ({len(found[name])} points, auto finds {len(values)})"
        for name, values in wanted.items()
        if name in found and repr(found[name]) != repr(values)
    ]
    if other:
        yield f"not the same as auto finds: {', '.join(other)}"
    extra = [name for name in found if name not in wanted]
    if extra:
        yield f"auto finds no: {', '.join(extra)}"
