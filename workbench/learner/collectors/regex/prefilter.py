"""Analyses a regular expression: a text that every match holds, and what the first line of a match looks like.

Both save matching: a line without the required text is never matched against the pattern, and a line that cannot
begin a match does not wait for the lines after it. The analysis uses the parser of Python's ``re``, which is not a
public interface; where it fails, nothing is filtered.
"""

from __future__ import annotations

import importlib
import re
import warnings
from typing import Any, List, Optional, Pattern

FLAGS = re.MULTILINE | re.DOTALL

_NEWLINE = ord("\n")


def _module(new: str, old: str) -> Any:
    try:
        return importlib.import_module(new)
    except ImportError:  # before Python 3.11
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return importlib.import_module(old)


def required_text(pattern: str) -> str:
    """Return the longest literal text that every match holds, without newlines; empty when none is known."""
    try:
        parser = _module("re._parser", "sre_parse")
        parsed = parser.parse(pattern, FLAGS)
        if parsed.state.flags & re.IGNORECASE:
            return ""
        runs: List[str] = [""]
        _collect(parsed, runs)
        return max(runs, key=len)
    except Exception:  # the parser is not a public interface; without it everything is tried
        return ""


def opening(pattern: str) -> Optional[Pattern[str]]:
    """Return a pattern that matches every line, or lines, that a match could begin with.

    None when that is not known: then any line may begin a match.
    """
    try:
        parser = _module("re._parser", "sre_parse")
        compiler = _module("re._compiler", "sre_compile")
        parsed = parser.parse(pattern, FLAGS)
        begin = _beginning(parser, parsed.state, list(parsed))
        if not begin:
            return None
        compiled: Pattern[str] = compiler.compile(parser.SubPattern(parsed.state, begin), FLAGS)
        return compiled
    except Exception:  # the parser is not a public interface; without it every line may begin a match
        return None


def _collect(items: Any, runs: List[str]) -> None:
    """Append the runs of literal characters that every match holds; the last item of ``runs`` still grows."""
    for operation, argument in items:
        name = str(operation)
        if name == "LITERAL" and argument != _NEWLINE:
            runs[-1] += chr(argument)
            continue
        if name == "SUBPATTERN":
            _group, added, _removed, inner = argument
            if not added & re.IGNORECASE:
                _collect(inner, runs)
                continue
        elif name == "ATOMIC_GROUP":
            _collect(argument, runs)
            continue
        elif name.endswith("REPEAT") and argument[0] > 0:
            runs.append("")
            _collect(argument[2], runs)
        elif name == "AT":
            continue
        runs.append("")


def _beginning(parser: Any, state: Any, items: List[Any]) -> List[Any]:
    """Return the items up to the first that may match beyond the end of a line; there the text may end."""
    begin: List[Any] = []
    for index, item in enumerate(items):
        if not _may_pass_line(item):
            begin.append(item)
            continue
        if _is_plain_group(item):
            return begin + _beginning(parser, state, list(item[1][3]) + items[index + 1 :])
        if _is_run(item):
            constants = _module("re._constants", "sre_constants")
            end = parser.SubPattern(state, [(constants.AT, constants.AT_END_STRING)])
            rest = parser.SubPattern(state, _beginning(parser, state, items[index + 1 :]))
            if len(rest):
                begin += [item, (constants.BRANCH, (None, [end, rest]))]
        return begin
    return begin


def _is_plain_group(item: Any) -> bool:
    operation, argument = item
    return str(operation) == "SUBPATTERN" and not argument[1] and not argument[2]


def _is_run(item: Any) -> bool:
    """Whether it is one character, or any number of one kind, that may be a newline but not anything."""
    operation, argument = item
    if str(operation) in ("MAX_REPEAT", "MIN_REPEAT"):
        return len(argument[2]) == 1 and argument[0] <= 1 and _is_one(argument[2][0])
    return _is_one(item)


def _is_one(item: Any) -> bool:
    return str(item[0]) in ("LITERAL", "NOT_LITERAL", "IN")


def _may_pass_line(item: Any) -> bool:
    """Whether a match of the item may hold a newline, or look past the end of the text so far."""
    operation, argument = item
    name = str(operation)
    if name == "LITERAL":
        return bool(argument == _NEWLINE)
    if name == "NOT_LITERAL":
        return bool(argument != _NEWLINE)
    if name == "IN":
        return _set_has_newline(argument)
    if name == "SUBPATTERN":
        return any(_may_pass_line(inner) for inner in argument[3])
    if name == "BRANCH":
        return any(_may_pass_line(inner) for branch in argument[1] for inner in branch)
    if name.endswith("REPEAT"):
        return any(_may_pass_line(inner) for inner in argument[2])
    if name == "AT":
        return str(argument) == "AT_END_STRING"
    return True  # ANY with DOTALL, assertions, references, and whatever a newer Python adds


def _set_has_newline(members: Any) -> bool:
    negated = False
    holds = False
    for kind, argument in members:
        name = str(kind)
        if name == "NEGATE":
            negated = True
        elif name == "LITERAL":
            holds |= argument == _NEWLINE
        elif name == "RANGE":
            holds |= argument[0] <= _NEWLINE <= argument[1]
        else:
            holds |= str(argument) in (
                "CATEGORY_SPACE",
                "CATEGORY_NOT_DIGIT",
                "CATEGORY_NOT_WORD",
                "CATEGORY_UNI_SPACE",
            )
    return holds != negated
