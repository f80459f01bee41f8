"""Gathers points into blocks: columns of equal length, one record instead of one a point."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Tuple

from workbench.learner.collectors.values import Number, Step
from workbench.learner.texts import clean_name

BLOCK_POINTS = 1000
"""Rows of a block at most, and points at which blocks are given out without waiting."""

_Key = Tuple[str, str]


class _Block:
    """One block being filled."""

    __slots__ = ("etimes", "key", "names", "steps", "texts", "times", "values")

    def __init__(self, key: _Key, names: Tuple[Tuple[str, ...], ...]) -> None:
        self.key = key
        self.names = names
        self.steps: List[Step] = []
        self.times: List[int] = []
        columns: Tuple[Dict[str, List[Any]], ...] = tuple({name: [] for name in kind} for kind in names)
        self.values, self.etimes, self.texts = columns

    def record(self) -> Dict[str, Any]:
        record: Dict[str, Any] = {
            "kind": "metrics",
            "time": self.times[-1],
            "group": self.key[0],
            "subid": self.key[1],
            "steps": self.steps,
            "times": self.times,
            "values": self.values,
        }
        if self.etimes:
            record["etimes"] = self.etimes
        if self.texts:
            record["texts"] = self.texts
        return record


class Blocks:
    """Points on their way into records; the points of one group stay in order."""

    def __init__(self) -> None:
        self.points = 0
        """How many values are in it."""
        self._closed: List[_Block] = []
        self._open: Dict[_Key, _Block] = {}

    def add(
        self,
        group: str,
        subid: str,
        *,
        step: Step,
        time_us: int,
        values: Mapping[str, Number],
        etimes: Mapping[str, Number],
        texts: Mapping[str, str],
    ) -> None:
        """Add points that share step and time; names that differ from the last ones' start a new block."""
        key = (group, subid)
        values = {clean_name(name): value for name, value in values.items()}
        etimes = {clean_name(name): value for name, value in etimes.items()}
        texts = {clean_name(name): value for name, value in texts.items()}
        names = (tuple(values), tuple(etimes), tuple(texts))
        block = self._open.get(key)
        if block is None or block.names != names or len(block.times) >= BLOCK_POINTS:
            if block is not None:
                self._closed.append(block)
            block = self._open[key] = _Block((clean_name(group), clean_name(subid)), names)
        block.steps.append(step)
        block.times.append(time_us)
        for columns, row in ((block.values, values), (block.etimes, etimes), (block.texts, texts)):
            for name, value in row.items():
                columns[name].append(value)
        self.points += len(values) or 1

    def drain(self) -> List[Dict[str, Any]]:
        """Return all blocks as records and be empty; the same points in the same order give the same ones."""
        blocks = self._closed + list(self._open.values())
        self._closed, self._open, self.points = [], {}, 0
        return [block.record() for block in blocks]
