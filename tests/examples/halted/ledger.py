"""What a training program writes down itself, beside all that fabric reads: each value, and where each start went on.

Programs of this folder import it, in whatever Python they run: only the standard library is there. ``sys.argv`` has the
file, and after how many batches each start waits for somebody who halts it: ``ledger.jsonl 19,25``.
"""

import json
import os
import signal
import sys
import time


class Ledger:
    """The file, and which start of the program this is."""

    def __init__(self):
        self._path, stops = sys.argv[1:3]
        self._learner = int(os.environ.get("LEARNER_ID", "1"))
        before = 0
        if os.path.exists(self._path):
            with open(self._path) as file:
                found = [json.loads(line) for line in file]
            before = sum(each["kind"] == "start" and each["learner"] == self._learner for each in found)
        self.start = before + 1
        each = [int(stop) for stop in stops.split(",") if stop]
        self._stop = each[before] if before < len(each) else None

    def started(self, loaded):
        """Write down that a start went on with the state after so many batches; 0 for none."""
        self._write(kind="start", at=loaded)

    def reported(self, at, x, **values):
        """Write down what was measured after so many batches, and what the program calls that place."""
        self._write(
            kind="reported", at=at, x=x, values={name: float(value) for name, value in values.items()}
        )

    def wait_for_halt(self, done):
        """Wait where this start is to be halted; elsewhere go on."""
        if done == self._stop:
            self._write(kind="waits", at=done)
            signal.pause()

    def _write(self, **line):
        line.update(start=self.start, learner=self._learner, time=time.time())
        with open(self._path, "a") as file:
            file.write(json.dumps(line) + "\n")
