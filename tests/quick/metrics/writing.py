"""Records as learners leave them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HEADER = {"format": 1, "agent": "0.1.0", "job": "training-222222222"}


class Records:
    """A ``records.jsonl`` that grows."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.seq = 0
        file.write_text(json.dumps(HEADER) + "\n")

    def add(self, kind: str, **fields: Any) -> None:
        self.seq += 1
        self.raw(json.dumps({"seq": self.seq, "time": 1000 + self.seq, "kind": kind, **fields}) + "\n")

    def points(
        self,
        values: Mapping[str, Sequence[Any]],
        *,
        steps: Sequence[Any] | None = None,
        times: Sequence[int] | None = None,
        **more: Any,
    ) -> None:
        count = len(next(iter(values.values())))
        times = list(range(count)) if times is None else times
        self.add("metrics", source="test", steps=steps or [None] * count, times=times, values=values, **more)

    def raw(self, text: str) -> None:
        with self.file.open("a") as stream:
            stream.write(text)
