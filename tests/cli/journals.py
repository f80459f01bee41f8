"""Journals as an agent leaves them, written by hand, for commands that read them."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

from workbench.paths import Home, LearnerFolder
from workbench.store.db.rows import JobRow

START_US = 1_700_000_000_000_000


def folder_of(home: Home, row: JobRow, *, learner: int = 1, attempt: int = 1) -> LearnerFolder:
    """Return a learner's folder, made."""
    folder = home.job(row.id).attempt(attempt).learner(learner)
    folder.path.mkdir(parents=True, exist_ok=True)
    return folder


def write_output(folder: LearnerFolder, pieces: Sequence[bytes], *, step_us: int = 1_000_000) -> None:
    """Write output and index: one entry a piece, a second apart."""
    end = newlines = 0
    entries = [struct.pack("<8sQQ", b"FABRIDX1", START_US, 0)]
    for number, piece in enumerate(pieces):
        end += len(piece)
        newlines += piece.count(b"\n")
        entries.append(struct.pack("<QQQ", end, START_US + number * step_us, newlines))
    folder.output.write_bytes(b"".join(pieces))
    folder.index.write_bytes(b"".join(entries))
    folder.state.write_text(json.dumps({"format": 1, "phase": "exited", "exit_code": 0}))


def write_records(
    folder: LearnerFolder, row: JobRow, records: Sequence[dict[str, Any]], *, home: str
) -> None:
    """Write a header and records, numbered from 1."""
    header = {
        "format": 1, "agent": "0", "home": home, "job": row.id, "attempt": 1, "learner": 1,
        "time_us": START_US, "boottime_us": 0,
    }  # fmt: skip
    lines = [header, *({"seq": n, "time": START_US, **each} for n, each in enumerate(records, 1))]
    folder.records.write_text("".join(json.dumps(line) + "\n" for line in lines))


def points(steps: Sequence[int], **values: Sequence[float | None]) -> dict[str, Any]:
    """Return a metrics record."""
    return {
        "kind": "metrics",
        "source": "report",
        "group": "",
        "subid": "",
        "steps": list(steps),
        "times": [START_US + step * 1_000_000 for step in steps],
        "values": {name: list(column) for name, column in values.items()},
    }
