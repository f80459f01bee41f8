"""Makes many learners' collectors where a user has 40 instances of inotify; run in a user namespace of its own.

Prints, as JSON, how many instances the collectors hold, how many others can still have, and the steps by learner.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.learner.collecting import NOW_US, context, instances_held, points_of
from workbench.learner import collectors
from workbench.learner.platform.inotify import Inotify

LIMIT, LEARNERS, STEPS = 40, 20, 3


def main(root: Path) -> None:
    """Let each learner write before it is looked at and while it is watched or polled."""
    Path("/proc/sys/user/max_inotify_instances").write_text(str(LIMIT))
    made = [
        (where, collectors.make({"type": "emetrics_file"}, where))
        for where in (context(root / str(number)) for number in range(LEARNERS))
    ]
    written: list[list[collectors.Record]] = [[] for _ in made]
    moment_us = NOW_US
    for step in range(STEPS):
        for where, _ in made:
            line = {
                "values": {"loss": {"type": "FLOAT", "value": step}},
                "etimes": {"iteration": {"value": step}},
            }
            with Path(where.log_dir, "evaluation-metrics.txt").open("a") as file:
                file.write(json.dumps(line) + "\n")
            with Path(where.learner_dir, "report.jsonl").open("a") as file:
                file.write(json.dumps({"kind": "metrics", "step": step, "values": {"reported": step}}) + "\n")
        for _ in range(2):  # what one call reads, another gives out
            moment_us += 600_000
            for (_, found), records in zip(made, written, strict=True):
                for collector in found:
                    collector.poll(moment_us)
                    records.extend(collector.take())
    answer: dict[str, Any] = {"held": instances_held(), "free": instances_left(), "steps": []}
    for records in written:
        steps = {name: [step for step, _ in found] for (_, _, name), found in points_of(records).items()}
        answer["steps"].append({name: steps.get(name) for name in ("loss", "reported")})
    for _, found in made:
        for collector in found:
            collector.close()
    print(json.dumps(answer))


def instances_left() -> int:
    """Take all that are left, and give them back."""
    import ctypes

    taken: list[Inotify] = []
    library = ctypes.CDLL(None, use_errno=True)
    try:
        while True:
            taken.append(Inotify(library))
    except OSError:
        return len(taken)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
