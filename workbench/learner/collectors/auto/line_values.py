"""Reads one printed line: which numbers stand in it, by which names, and what counts the steps.

Every expression here needs time in proportion to the line, and of a line only the beginning is read.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from workbench.learner.collectors.auto.names import (
    EPOCH,
    METRIC,
    OTHER,
    SKIPPED,
    STEP,
    has_phase,
    is_phase,
    is_qualifier,
    kind_of,
    phase_in,
)
from workbench.learner.texts import expression

LINE_CHARACTERS = 4000
"""So much of a line is read."""
NUMBERS = 80
"""So many numbers of a line are looked at."""
JSON_DEPTH = 4

_ESCAPES = expression(r"\x1b(?:\[[0-9;?]*[A-Za-z]|[()][A-Z0-9]|[=>])|\x08+")
_MASKED = expression(
    r"\d(?:\d{3}[-/]\d\d?[-/]\d\d?[T ,]{0,4}|\d?/\d\d?(?:/\d\d(?:\d\d)?\b|[ T](?=\d\d?:\d\d))"
    r"|\d{0,3}:\d\d(?::\d\d)?(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?(?![\d:])"
    r"|(?<![\d.]\d)\d{0,5}\.\d{1,9}\.\d{1,9}(?:\.\d{1,9}){0,3}|(?<=0)x[0-9a-fA-F]+)"
)
"""Dates, times, addresses and versions. It begins with one digit for all: other characters are passed quickly."""
_NUMBER = expression(
    r"(?<![\w@.\-+/\\$#])[-+]?"
    r"(?:(?:\d{1,3}(?:,\d{3}){1,5}(?:\.\d+)?(?![\d,])|\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|(?:nan|NaN|NAN|inf(?:inity)?|Infinity|INF)(?![\w]))"
)
_RATIO = expression(r"[ \t]{0,4}/[ \t]{0,4}(\d+)")
_UNIT = expression(
    r"[ \t]?(?:[kKMGT]i?[bB]|[kKMGTB]|ms|us|µs|ns|s|sec|secs|seconds?|mins?|minutes?|hours?|h|m|d|days?|it/s|s/it"
    r"|px|°C|W)(?![\w/])"
    r"|[A-Za-z_/]|-(?=\d)|[ \t]?(?:[A-Za-z]{1,10}/(?:s|sec|it|step|batch|min)\b(?![=:]))"
)
"""What makes a number a time, a size, the begin of a range or part of a word."""
_COUNT_WORD = expression(
    r"[ \t]{1,4}(batch(?:es)?|steps?|iter(?:ation)?s?|epochs?|updates?)\b", re.IGNORECASE
)
_PERCENT_BEHIND = expression(r"[ \t]{0,3}\([ \t]*([-+]?\d+(?:\.\d*)?)[ \t]?%\)")
_FIRST_STEP = expression(r"[ \t]{0,40}(?:\[(\d{1,18})\](?=[\s:])|(\d{1,18}):(?=[ \t]))")
_FIRST_PAIR = expression(
    r"[ \t]*\[[ \t]*(\d+)[ \t]*(?:,|/[ \t]*\d+\][ \t]*\[)[ \t]*(\d+)[ \t]*(?:/[ \t]*\d+)?[ \t]*\]"
)
_BAR = expression(r"(\d{1,3})%\|[^|]{0,400}\|[ \t]{0,20}(\d{1,18})/(\d{1,18}|\?)[ \t]{0,20}\[")
_THICK_BAR = expression(r"[━╸╺─]{4,}|\[[=>.]{4,}\]")
_WHOLE_EPOCH = expression(r"[ \t]*(\d+)/\1 - \d+m?s ")
_PART = expression(
    r"(?<![\w./\-])(train(?:ing)?|val(?:id(?:ation)?)?|test(?:ing)?|eval(?:uation)?|dev)(?:\]|:(?=[ \t]))",
    re.IGNORECASE,
)
_SOURCE = expression(r"\.(?:py|cc|cpp|cu|c|h|go|rs|java|js)$")
_NAME_BEHIND = expression(r"%?[ \t]([A-Za-z]{1,20}(?:[ _][A-Za-z]{1,20})?)(?=[ \t]?(?:[,;|]|$))")
_WRAPPER = expression(r"(?:\b(?:np\.|numpy\.|torch\.)?(?:tensor|array|float\d*|Array|Tensor))$")
_DELIMITERS = str.maketrans(dict.fromkeys(",;|│┃(){}[]\t:>•\"'=━┆", "\n"))
_LEVELS = frozenset(("info", "debug", "warning", "warn", "error", "critical", "notice", "trace"))
_GLUE = frozenset(
    "is of the was and with at a an now then so -> - * = finished completed ended".split()  # noqa: SIM905 - readable
)
_PHRASE_WORDS = 4
_NAME_CHARACTERS = 80

ParsedNumber = Union[int, float]


class Value(NamedTuple):
    """A number of a line, and where it stands in it."""

    name: str
    kind: str
    value: float
    begin: int
    end: int
    key_begin: int


class LineValues(NamedTuple):
    """What a line holds."""

    group: str
    values: Tuple[Tuple[str, float], ...]
    epoch: Optional[ParsedNumber]
    step: Optional[ParsedNumber]
    step_name: str
    total: Optional[int]
    is_bar: bool
    is_partial: bool
    """Whether it is a bar's state that a later one replaces."""
    is_whole: bool = False
    """Whether it is the last state of such a bar, which may be printed once more with more numbers."""
    spans: Tuple[Tuple[str, int, int], ...] = ()
    """Where in the line the values and steps stand, by name."""

    @property
    def names(self) -> Tuple[str, ...]:
        """Return what the line is known again by."""
        return tuple(name for name, _ in self.values)


def cleaned(text: str) -> str:
    """Return the line as a person sees it: without what controls the terminal."""
    text = text[:LINE_CHARACTERS]
    return _ESCAPES.sub("", text) if "\x1b" in text or "\b" in text else text


def parse(text: str) -> Optional[float]:
    """Return a printed number; None where it is none."""
    text = text.replace(",", "")
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None


def line_values(text: str) -> Optional[LineValues]:
    """Return what a cleaned line holds; None where it holds neither a metric nor a step."""
    begin = text.lstrip()[:1]
    if begin == "{" and text.rstrip()[-1:] == "}":
        found = _json_values(text)
        if found is not None:
            return found
    return _text_values(text)


def _json_values(text: str) -> Optional[LineValues]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    pairs: List[Tuple[str, float]] = []
    _flatten(document, "", pairs, 0)
    group = ""
    if isinstance(document, dict):
        named = [document.get(key) for key in ("mode", "phase", "split", "stage", "subset", "prefix")]
        group = next((phase_in(word) for word in named if isinstance(word, str)), "")
    return values_of_pairs(pairs, group)


def values_of_pairs(pairs: Sequence[Tuple[str, float]], group: str = "") -> Optional[LineValues]:
    """Return what names with numbers hold; None where they hold neither a metric nor a step."""
    steps = _Steps()
    values: List[Tuple[str, float, str]] = []
    for name, value in pairs[:NUMBERS]:
        kind = kind_of(name)
        if kind in (EPOCH, STEP):
            steps.add(kind, name, value, None)
        elif kind != SKIPPED:
            values.append((name, value, kind))
    return _result(group, values, steps)


def _flatten(value: Any, path: str, found: List[Tuple[str, float]], depth: int) -> None:
    if isinstance(value, dict) and depth < JSON_DEPTH:
        for key, item in value.items():
            _flatten(item, "%s/%s" % (path, key) if path else str(key), found, depth + 1)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        found.append((path[:_NAME_CHARACTERS], value))
    elif isinstance(value, str) and path and len(value) < 40 and _NUMBER.fullmatch(value):
        number = parse(value)
        if number is not None:
            found.append((path[:_NAME_CHARACTERS], number))


class _Steps:
    """What counts the steps of a line."""

    def __init__(self) -> None:
        self.epoch: Optional[ParsedNumber] = None
        self.step: Optional[ParsedNumber] = None
        self.name = ""
        self.total: Optional[int] = None
        self.epoch_total: Optional[int] = None

    def add(self, kind: str, name: str, value: float, total: Optional[int]) -> None:
        """Take one count: of a kind the first, but a global one before a local one."""
        if not math.isfinite(value):
            return
        if kind == EPOCH:
            if self.epoch is None:
                self.epoch, self.epoch_total = value, total
        elif self.step is None or (_is_global(name) and not _is_global(self.name)):
            self.step, self.name, self.total = value, name, total


def _is_global(name: str) -> bool:
    """Say whether a name counts through all epochs."""
    small = name.lower()
    return "global" in small or small in ("num_updates", "training_iteration")


def _text_values(text: str) -> Optional[LineValues]:
    line = _MASKED.sub(_blank, text)
    steps = _Steps()
    bar = _BAR.search(line) if "%|" in line else None
    thick = None if bar is not None else _thick_bar(line)
    begin = 0
    if bar is not None:
        line = line[: bar.start()] + " " * (bar.end() - bar.start() - 1) + "[" + line[bar.end() :]
    else:
        begin = _leading_step(line, steps)
    values = _pairs(line, begin, steps)
    is_partial = is_whole = False
    if bar is not None:
        total = None if bar.group(3) == "?" else int(bar.group(3))
        steps.step, steps.name, steps.total = int(bar.group(2)), "step", total
    elif thick is not None and steps.total is not None and steps.name == "step":
        # The bar counts within an epoch, and its line at the end of the epoch is what stands for it.
        is_partial = steps.step != steps.total
        is_whole = not is_partial
        steps.step = None
    key_begin = min((value.key_begin for value in values), default=len(text))
    parted = _parted(values, line)
    group = "" if parted else phase_in(text[:key_begin])
    if bar is not None and not group:
        group = _bar_name(line[: bar.start()])
        group = "" if any(each.name == group for each in values) else group
    if parted:
        group, values = "", parted
    elif not group:
        group, values = _shared_phase(values, text)
    found = _result(group, [(each.name, each.value, each.kind) for each in values], steps)
    if found is None:
        return None
    spans = tuple((each.name, each.begin, each.end) for each in values)
    return found._replace(spans=spans, is_bar=bar is not None, is_partial=is_partial, is_whole=is_whole)


def _parted(values: List[Value], line: str) -> List[Value]:
    """Return the values of ``Train: loss=0.5 acc=0.9 Val: loss=0.6 acc=0.8`` by their parts.

    Empty where no name comes twice.
    """
    if len({each.name for each in values}) == len(values):
        return []
    begins = [(found.start(), phase_in(found.group(1))) for found in _PART.finditer(line)]
    begins += [(each.begin, phase) for each in values if (phase := phase_in(each.name.replace("_", " ")))]
    if len({phase for _, phase in begins}) < 2:
        return []
    parted = []
    for each in values:
        phase = max(((at, phase) for at, phase in begins if at <= each.begin), default=(0, ""))[1]
        is_whole = not phase or has_phase(each.name)
        parted.append(each if is_whole else each._replace(name="%s/%s" % (phase, each.name)))
    return parted


def _shared_phase(values: List[Value], text: str) -> Tuple[str, List[Value]]:
    """Return what ``train loss: 0.5 acc: 0.9`` says of all its numbers, and these without it."""
    first, _, rest = (values[0].name if values else "").partition("_")
    if not rest or not is_phase(first) or all(has_phase(each.name) for each in values):
        return "", values
    if "%s %s" % (first, rest.partition("_")[0]) not in text:
        return "", values
    begin = first + "_"
    return phase_in(first), [
        each._replace(name=each.name[len(begin) :]) if each.name.startswith(begin) else each
        for each in values
    ]


def _blank(found: "re.Match[str]") -> str:
    return " " * (found.end() - found.start())


def _thick_bar(line: str) -> Any:
    whole = _WHOLE_EPOCH.match(line)
    if whole is not None:
        return whole
    return _THICK_BAR.search(line) if "━" in line or "[=" in line or "[." in line or "[>" in line else None


def _bar_name(text: str) -> str:
    """Return what a bar is called by the text before it: bars that are nested are kept apart by it."""
    words = [word for word in _SPLIT.split(text) if word and not word[0].isdigit()]
    return (
        " ".join(words)[:_NAME_CHARACTERS]
        if (words and kind_of("_".join(words)) != EPOCH) or len(words) > 1
        else ""
    )


def _leading_step(line: str, steps: _Steps) -> int:
    """Take what a line begins with: ``[10]``, ``10:`` or ``[1, 2000]``; return where the rest begins."""
    found = _FIRST_PAIR.match(line)
    if found is not None:
        steps.add(EPOCH, "epoch", int(found.group(1)), None)
        steps.add(STEP, "step", int(found.group(2)), None)
        return found.end()
    found = _FIRST_STEP.match(line)
    if found is not None:
        steps.add(STEP, "iteration", int(found.group(1) or found.group(2)), None)
        return found.end()
    return 0


def _pairs(line: str, begin: int, steps: _Steps) -> List[Value]:
    """Return the named numbers of a line, and give what counts its steps to ``steps``."""
    values: List[Value] = []
    last = begin
    for count, found in enumerate(_NUMBER.finditer(line, begin)):
        if count >= NUMBERS:
            break
        start, end = found.span()
        if start < last:
            continue
        gap, gap_begin, last = line[last:start], last, end
        text = found.group()
        total = None
        ratio = _RATIO.match(line, end) if text.isdigit() else None
        if ratio is not None:
            total, last = int(ratio.group(1)), ratio.end()
            counted = _COUNT_WORD.match(line, last)
            if counted is not None and counted.group(1)[:5].lower() != "epoch":
                steps.add(STEP, counted.group(1).lower(), int(text), total)
                continue
        name, kind = _key(gap, line[last : last + 2], is_bounded=line[last : last + 1] in _ENDS)
        if not name:
            if total is not None and "/" not in gap and int(text) <= total and total > 0:
                steps.add(STEP, "step", int(text), total)
                continue
            called = _NAME_BEHIND.match(line, end) if total is None else None
            number = parse(text)
            if called is not None and number is not None and kind_of(called.group(1)) == METRIC:
                name = "_".join(called.group(1).split())
                values.append(Value(name, METRIC, number, start, end, start))
                last = called.end()
            continue
        value = parse(text)
        if value is None or kind == SKIPPED:
            continue
        if kind in (EPOCH, STEP):
            steps.add(kind, name, value, total)
            continue
        if is_phase(name) and isinstance(value, int):
            # ``Train: 3 [ 10/156]`` counts epochs, ``Test: [ 10/156]`` what is done.
            if total is not None:
                steps.add(STEP, "step", value, total)
                continue
            if line[last : last + 2] == " [":
                steps.add(EPOCH, name, value, None)
                continue
        is_place = ":" in gap[:-1].rpartition(" ")[2]  # ``trainer:train:88``
        if gap[-1:] == ":" and isinstance(value, int) and (kind == OTHER or is_place):
            continue
        if total is not None:
            percent = _PERCENT_BEHIND.match(line, last)
            if percent is not None:
                value, start, end = float(percent.group(1)), percent.start(1), percent.end(1)
                last = percent.end()
            elif kind == OTHER:
                continue  # it says how much is done: [CV 2/5], sample=9/120
        elif _UNIT.match(line, end) and name.lower() not in ("speed", "throughput"):
            continue
        values.append(Value(name, kind, value, start, end, _beginning(line, name, gap_begin, start)))
    return values


def _beginning(line: str, name: str, begin: int, end: int) -> int:
    found = line.rfind(name.partition("_")[0], begin, end)
    return begin if found < 0 else found


_ENDS = ("", ",", ";", "|", "│", "┃", "\t", "]", "}", ")", "%")
_SPLIT = expression(r"[^A-Za-z0-9_]+")


def _key(gap: str, behind: str, *, is_bounded: bool) -> Tuple[str, str]:
    """Return the name of the number behind a text, and what it is; empty where it has none."""
    gap = gap[-200:]
    head = gap.rstrip(" \t")
    body = head.rstrip("'\"([{ \t")
    opened = head[len(body) :]
    if "(" in opened:
        wrapper = _WRAPPER.search(body[-24:])
        if wrapper is not None:
            body = body[: len(body) - len(body[-24:]) + wrapper.start()].rstrip(" \t'\"[")
        elif body[-1:] not in ("=", ":"):
            return "", ""
    separator = body[-1:]
    if separator in ("=", ":", "|", "│", "┃"):
        before = body[:-1]
        body = before.rstrip(" \t'\"")
        is_tight = separator == "=" and before == body.rstrip("'\"")
    else:
        separator, is_tight = " ", False
    called = body.rpartition(" ")[2].rpartition("\t")[2]
    if (
        body[-1:] == ")"
        and called[:1].isalpha()
        and "(" in called
        and "=" not in called
        and "," not in called
    ):
        inner = called.partition("(")[2][:-1].lower()
        return ("", "") if inner in _UNIT_WORDS else (called[:_NAME_CHARACTERS], kind_of(called))
    if body[-1:] == ")":
        opening = body.rfind("(")
        if opening < 0 or body[opening + 1 : -1].strip().lower() in _UNIT_WORDS:
            return "", ""
        body = body[:opening].rstrip()
    return _named(body, separator, is_tight=is_tight, is_bounded=is_bounded and not opened.strip("[ "))


_UNIT_WORDS = frozenset(
    ("s", "ms", "sec", "secs", "seconds", "min", "minutes", "h", "hours", "us", "mb", "gb", "gib", "mib")
)


def _named(body: str, separator: str, *, is_tight: bool, is_bounded: bool) -> Tuple[str, str]:
    cut = body.replace("'s ", " ").translate(_DELIMITERS).replace(" - ", "\n").replace("  ", "\n")
    before, newline, part = cut.rpartition("\n")
    words = [word.strip(".*#!?~<>`/%") for word in part.split()]
    words = [word for word in words if word]
    if not words or (not words[-1][-1:].isalnum() and words[-1][-1:] not in "_@²"):
        return "", ""
    if is_tight:
        words = words[-1:]
    if _SOURCE.search(words[-1]):
        return "", ""
    for index in range(len(words) - 1, -1, -1):
        if words[index].lower() in _LEVELS or words[index].lower() in _GLUE:
            words = words[index + 1 :]
            break
    if not words or (not words[-1][0].isalpha() and words[-1][0] not in "_\\"):
        return "", ""
    if separator == " ":
        return _spaced(words, is_bounded and (bool(newline) or not before))
    if len(words) > _PHRASE_WORDS:
        words = words[-2:]
    name = "_".join(words)[:_NAME_CHARACTERS]
    return name, kind_of(name)


def _spaced(words: List[str], is_bounded: bool) -> Tuple[str, str]:
    """Return the name that stands right before a number without a sign between: only one that is known."""
    kind = kind_of(words[-1])
    if kind in (EPOCH, STEP):
        whole = "_".join(words[-3:])
        return (whole, kind) if kind_of(whole) == kind else (words[-1], kind)
    if kind == METRIC:
        name = words[-1:]
        for word in words[-2:-4:-1]:
            if not is_qualifier(word):
                break
            name.insert(0, word)
        return "_".join(name), METRIC
    if kind == OTHER and is_bounded and len(words) <= 2:
        name_text = "_".join(words)
        return name_text, kind_of(name_text)
    if kind == SKIPPED:
        return words[-1], SKIPPED
    return "", ""


def _result(group: str, values: List[Tuple[str, float, str]], steps: _Steps) -> Optional[LineValues]:
    has_metric = any(kind == METRIC for _, _, kind in values)
    has_step = steps.epoch is not None or steps.step is not None
    if not has_metric and not (has_step and any(isinstance(value, float) for _, value, _ in values)):
        values = []
    if not values and not has_step:
        return None
    once: Dict[str, float] = {}
    for name, value, _ in values:
        once.setdefault(name, value)
    if group and any(has_phase(name) for name in once):
        group = ""
    return LineValues(
        group, tuple(once.items()), steps.epoch, steps.step, steps.name, steps.total, False, False
    )
