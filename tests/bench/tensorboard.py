"""100,000 TensorBoard scalars from file to points in memory, beside TensorBoard's own EventAccumulator."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.harness import Row, in_turn, peer_python

SCALARS = 100_000

WRITE = """
import sys
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter(sys.argv[1])
for step in range(int(sys.argv[2])):
    value = Summary.Value(tag="loss", simple_value=1.0 / (step + 1))
    writer.add_event(Event(step=step, wall_time=1.7e9 + step, summary=Summary(value=[value])))
writer.close()
"""

THEIRS = """
import sys, time
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
started = time.perf_counter()
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
events.Reload()
assert len(events.Scalars("loss")) == int(sys.argv[2])
print(time.perf_counter() - started)
"""

OURS = """
import sys, time
from workbench.learner.collectors import make
from workbench.learner.collectors.interface import Context
started = time.perf_counter()
folder = sys.argv[1]
context = Context(folder, folder, folder, 1, {}, True)
points = 0
(collector,) = [c for c in make({"type": "tensorboard"}, context) if c.name == "tensorboard"]
while points < int(sys.argv[2]):
    collector.poll(time.time_ns() // 1000)
    points += sum(len(record["steps"]) for record in collector.take() if record["kind"] == "metrics")
print(time.perf_counter() - started)
"""


def seconds_inside(python: str, code: str, folder: str) -> float:
    """Run code in a fresh interpreter; it prints how long its own work took, imports left out."""
    ran = subprocess.run(
        [python, "-c", code, folder, str(SCALARS)], check=True, capture_output=True, text=True
    )
    return float(ran.stdout)


def rows() -> list[Row]:
    """Read the same file in turn."""
    peer = str(peer_python("tensorboard==2.21.0"))
    with tempfile.TemporaryDirectory() as folder:
        events = str(Path(folder) / "train")
        subprocess.run([peer, "-c", WRITE, events, str(SCALARS)], check=True, capture_output=True)
        ours, theirs = in_turn(
            lambda: seconds_inside(sys.executable, OURS, events),
            lambda: seconds_inside(peer, THEIRS, events),
            runs=5,
        )
    return [
        Row(
            "100,000 TensorBoard scalars to points",
            ours,
            "s",
            "EventAccumulator",
            theirs,
            "<= 0.25 x",
            ours <= theirs / 4,
        )
    ]
