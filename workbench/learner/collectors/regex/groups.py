"""Turns a match of a group of ``evaluation_metrics`` into values, evaluation times, step, time and subid."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from workbench.learner.collectors.regex.prefilter import FLAGS, opening, required_text
from workbench.learner.collectors.regex.windows import CompiledRule
from workbench.learner.collectors.values import Number, Step, number, parse_time, step_of, typed

MACROS: Dict[str, str] = {
    "GLOG_STAMP": r"[EFIW]\d\d\d\d\s+\d\d:\d\d:\d*\.\d+",
    "TIMESTAMP": r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:Z|[-+]\d{2}:?\d{2})?",
    # A loss that became nan or inf is a point too.
    "FLOAT": r"[-+]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|(?:[nN][aA][nN]|[iI][nN][fF](?:inity)?)\b)",
    "INT": r"[-+]?\d+",
    "INT_ANY": r"[-+]?(?:0[xX][\dA-Fa-f]+|0[0-7]*|\d+)",
    "HEX": r"[-+]?(?:0[xX])?[\dA-Fa-f]+",
}
"""Patterns by macro name; a pattern may use other macros."""

_REFERENCE = re.compile(r"%\{(\w+)(?::(\w+))?\}")
_DEPTH = 8


def expand(pattern: str, depth: int = 0) -> str:
    """Return the pattern with every macro ``%{NAME}`` or ``%{NAME:bind}`` expanded, nested ones too.

    Raises:
        ValueError: a macro is unknown, or uses itself.
    """
    if depth > _DEPTH:
        raise ValueError("the pattern %.60r names itself" % pattern)

    def replace(match: Tuple[str, str]) -> str:
        name, bind = match
        if name not in MACROS:
            known = ", ".join(sorted(MACROS))
            raise ValueError("there is no pattern %%{%s}; those there are: %s" % (name, known))
        body = expand(MACROS[name], depth + 1)
        return "(?P<%s>%s)" % (bind, body) if bind else "(?:%s)" % body

    return _REFERENCE.sub(lambda match: replace((match.group(1), match.group(2) or "")), pattern)


class Reading(NamedTuple):
    """The values that one match holds."""

    subid: str
    step: Step
    time_us: int
    values: Dict[str, Number]
    etimes: Dict[str, Number]
    texts: Dict[str, str]
    unreadable: List[str]
    """Names of values whose text is not of their type."""


class Group:
    """One group of the manifest: a regular expression, and which of its bound names are values, step and time.

    Raises:
        ValueError: the expression is invalid, or a value refers to a name that it does not bind.
    """

    def __init__(self, name: str, description: Mapping[str, Any]) -> None:
        self.name = name
        meta = description.get("meta") or {}
        self._time = str(description.get("time") or meta.get("time") or "")
        self._subid = str(description.get("subid") or meta.get("subid") or "")
        self._scalars = _typed_values(description.get("scalars") or description.get("values"))
        self._etimes = _typed_values(description.get("etimes"))
        self.rule = self._rule(str(description.get("regex") or ""))
        self._check()

    def _rule(self, pattern: str) -> CompiledRule:
        expanded = expand(pattern)
        try:
            regex = re.compile(expanded, FLAGS)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(
                "group %s: %r is not a regular expression: %s" % (self.name, pattern, error)
            ) from error
        return CompiledRule(self.name, regex, required_text(expanded), opening(expanded))

    def _check(self) -> None:
        bound = self.rule.regex.groupindex
        sources = [value for _name, _kind, value in self._scalars + self._etimes] + [self._time, self._subid]
        for source in sources:
            if source.startswith("$") and source[1:] not in bound:
                known = ", ".join("$" + name for name in bound) or "none"
                raise ValueError(
                    "group %s: %s is not bound by its regex (bound: %s)" % (self.name, source, known)
                )

    def read(self, found: Mapping[str, Optional[str]], time_us: int, subid: str) -> Reading:
        """Return the values of a match.

        Args:
            found: the bound texts by name; None for a part of the expression that did not match.
            time_us: when the text was printed, where the match binds no time.
            subid: of the stream, where the match binds none.
        """
        reading = Reading(
            subid=self._bound(self._subid, found) or subid,
            step=None,
            time_us=time_us,
            values={},
            etimes={},
            texts={},
            unreadable=[],
        )
        values = self._read_fields(self._scalars, found, reading)
        times = self._read_fields(self._etimes, found, reading)
        reading.values.update((name, number(value)) for name, value in values.items())
        reading.etimes.update((name, number(value)) for name, value in times.items())
        if self._time:
            time_us = parse_time(self._bound(self._time, found), time_us)
        return reading._replace(step=step_of(times), time_us=time_us)

    def _read_fields(
        self,
        fields: Iterable[Tuple[str, str, str]],
        found: Mapping[str, Optional[str]],
        reading: Reading,
    ) -> Dict[str, float]:
        """Return the numbers as they stand there, which steps need; texts and unreadable ones go to ``reading``."""
        numbers: Dict[str, float] = {}
        for name, kind, source in fields:
            text = self._bound(source, found)
            if text is None:
                continue  # an optional part of the expression that did not match
            try:
                value = typed(kind, text)
            except ValueError:
                reading.unreadable.append(name)
                continue
            if isinstance(value, str):
                reading.texts[name] = value
            else:
                numbers[name] = value
        return numbers

    @staticmethod
    def _bound(source: str, found: Mapping[str, Optional[str]]) -> Optional[str]:
        return found.get(source[1:]) if source.startswith("$") else source


def _typed_values(description: Any) -> List[Tuple[str, str, str]]:
    items = (description or {}).items()
    return [(str(name), str(item.get("type") or "FLOAT"), str(item.get("value", ""))) for name, item in items]
