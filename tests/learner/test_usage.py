"""Usage samples of real processes, and of GPUs that a stub of NVIDIA's library pretends."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.stubs import Gpus
from workbench.learner.gpu import nvml as gpu_nvml
from workbench.learner.platform import system
from workbench.learner.scribe import usage

ROOT = Path(__file__).parents[2]

Start = Callable[[str], "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start Python scripts that print a line when they are ready and then wait for their input to end."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(script: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    yield begin
    for process in started:
        process.communicate(timeout=20)


IDLE = "import sys; print('ready', flush=True); sys.stdin.read()"
HOLDS_64_MIB = "import sys; held = b'x' * (64 << 20); print('ready', flush=True); sys.stdin.read()"
SHARES_64_MIB = """
import os, sys
held = b'x' * (64 << 20)
told, tell = os.pipe()
child = os.fork()
if child == 0:
    os.close(tell)
    os.read(told, 1)
    os._exit(0)
print('ready', flush=True)
print(child, flush=True)
sys.stdin.read()
os.close(tell)
os.waitpid(child, 0)
"""
BUSY = """
import sys, threading, time
stop = []
def spin():
    while not stop:
        pass
threading.Thread(target=spin).start()
print('ready', flush=True)
sys.stdin.read()
stop.append(1)
"""
REAPS = """
import subprocess, sys
child = subprocess.Popen([sys.executable, '-c', "x = 0\\nfor i in range(6_000_000): x += i"])
child.wait()
print('ready', flush=True)
sys.stdin.read()
"""


def spend(meter: usage.Meter, pids: list[int], seconds: float) -> dict[str, Any]:
    """Sample when the process has used so much CPU more."""
    ticks = os.sysconf("SC_CLK_TCK")
    deadline = time.monotonic() + 20
    path = Path(f"/proc/{pids[0]}/stat")
    first = int(path.read_text().rpartition(")")[2].split()[11])
    while int(path.read_text().rpartition(")")[2].split()[11]) - first < seconds * ticks:
        assert time.monotonic() < deadline
    return meter.sample(pids)


def test_a_sample_is_a_usage_record(start: Start) -> None:
    process = start(IDLE)
    record = usage.Meter().sample([process.pid, 2**22 - 1])

    assert record["kind"] == "usage"
    assert record["processes"] == 1
    assert record["cpu_percent"] == 0.0
    assert 1 << 20 < record["memory_bytes"] < 1 << 30
    assert record["gpus"] == []
    assert abs(record["time"] - time.time_ns() // 1000) < 10_000_000


def test_memory_is_that_of_the_whole_tree(start: Start) -> None:
    small, large = start(IDLE), start(HOLDS_64_MIB)
    meter = usage.Meter()
    alone = meter.sample([small.pid])["memory_bytes"]

    assert meter.sample([small.pid, large.pid])["memory_bytes"] > alone + (64 << 20)


@pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="this kernel tells no shares of memory"
)
def test_what_processes_share_counts_once(start: Start) -> None:
    process = start(SHARES_64_MIB)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    used = usage.Meter().sample([process.pid, child])["memory_bytes"]

    assert 64 << 20 < used < 110 << 20


@pytest.mark.skipif(not system.LINUX, reason="CPU of a tree is read from /proc here")
def test_cpu_is_what_was_used_since_the_last_sample(start: Start) -> None:
    process = start(BUSY)
    meter = usage.Meter()
    meter.sample([process.pid])
    record = spend(meter, [process.pid], 0.2)

    assert 1.0 < record["cpu_percent"] < 150.0


@pytest.mark.skipif(not system.LINUX, reason="CPU of a tree is read from /proc here")
def test_cpu_of_children_that_have_ended_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parent = usage._Process((10, 1), 1, 1.0, 0.0, 0)
    child = usage._Process((11, 2), 10, 4.0, 0.0, 0)
    parent_after = usage._Process((10, 1), 1, 6.5, 5.0, 0)
    samples = iter([[parent, child], [parent_after], [parent_after]])
    monkeypatch.setattr(usage, "_read", lambda _pids: next(samples))
    meter = usage.Meter()
    found = []
    for now in (100.0, 110.0, 120.0):
        monkeypatch.setattr(time, "monotonic", lambda now=now: now)
        found.append(meter.sample([10, 11])["cpu_percent"])

    # 1.5 s more in all: 0.5 of the parent's own, 1.0 of the child's before it ended.
    assert found == [0.0, 15.0, 0.0]


@pytest.mark.skipif(not system.LINUX, reason="CPU of a tree is read from /proc here")
def test_a_child_that_came_and_went_between_two_samples_counts(start: Start) -> None:
    meter = usage.Meter()
    meter.sample([])
    process = start(REAPS)

    assert meter.sample([process.pid])["cpu_percent"] > 1.0


def test_where_there_is_no_proc_ps_tells(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("ps") is None:
        pytest.skip("there is no ps on this machine")
    process = start(HOLDS_64_MIB)
    monkeypatch.setattr(system, "LINUX", False)
    record = usage.Meter().sample([process.pid])

    assert record["processes"] == 1
    assert record["memory_bytes"] > 64 << 20


@pytest.mark.parametrize(
    ("text", "seconds"), [("00:00:07", 7.0), ("1:02.50", 62.5), ("2-01:00:00", 176_400.0), ("0:00.00", 0.0)]
)
def test_ps_times_are_read(text: str, seconds: float) -> None:
    assert usage._clock_seconds(text) == seconds


def test_a_large_process_is_not_held_up_each_time(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    process = start(IDLE)
    asked = []

    def slow(pid: int) -> int:
        asked.append(pid)
        monkeypatch.setattr(time, "monotonic", lambda: 1000.5)
        return 5 << 20

    monkeypatch.setattr(usage, "proportional_bytes", slow)
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    meter = usage.Meter()
    first = meter.sample([process.pid])["memory_bytes"]
    monkeypatch.setattr(time, "monotonic", lambda: 1049.0)
    second = meter.sample([process.pid])["memory_bytes"]
    assert (first, second, len(asked)) == (5 << 20, 5 << 20, 1)

    monkeypatch.setattr(time, "monotonic", lambda: 1051.0)
    meter.sample([process.pid])
    assert len(asked) == 2


def test_ten_processes_are_sampled_in_a_few_milliseconds(start: Start) -> None:
    pids = [start(IDLE).pid for _ in range(10)]
    meter = usage.Meter()
    begun = time.process_time()
    for _ in range(20):
        meter.sample(pids)

    assert (time.process_time() - begun) / 20 < 0.02


GPU_SCRIPT = """
import json, sys
from workbench.learner.scribe import usage
print(json.dumps(usage.sample(json.loads(sys.argv[1]), json.loads(sys.argv[2]))["gpus"]))
"""


def gpus(folder: Path, said: str, pids: list[int], slots: list[str]) -> Any:
    pretended = Gpus(folder / "gpus.txt").only(said.splitlines())
    told = subprocess.run(
        [sys.executable, "-c", GPU_SCRIPT, json.dumps(pids), json.dumps(slots)],
        capture_output=True,
        check=True,
        env={**pretended.env(), "PYTHONPATH": str(ROOT)},
    )
    return json.loads(told.stdout)


GPUS = """\
gpu GPU-a 80000 30000 97 60 300000 400000 NVIDIA A100
gpu GPU-b 80000 500 0 40 60000 400000 NVIDIA A100
gpu GPU-c 80000 9000 50 40 60000 400000 NVIDIA A100
mig GPU-c MIG-1 10000 4000
"""


def test_gpu_memory_is_that_of_our_processes(tmp_path: Path) -> None:
    mine = os.getpid()
    said = GPUS + f"process GPU-a {mine} 20000 compute\nprocess GPU-a 1 10000 compute\n"

    assert gpus(tmp_path, said, [mine], ["GPU-a", "GPU-b"]) == [
        {"uuid": "GPU-a", "memory_bytes": 20000, "utilization_percent": 97.0},
        {"uuid": "GPU-b", "memory_bytes": 0, "utilization_percent": 0.0},
    ]


def test_a_slice_of_a_gpu_has_memory_and_no_utilisation(tmp_path: Path) -> None:
    mine = os.getpid()
    said = GPUS + f"process MIG-1 {mine} 3000 compute\n"

    expected = {"uuid": "MIG-1", "memory_bytes": 3000, "utilization_percent": None}
    assert gpus(tmp_path, said, [mine], ["MIG-1"]) == [expected]


def test_in_a_container_pids_are_the_hosts_and_all_is_ours(tmp_path: Path) -> None:
    said = GPUS + "process GPU-a 99999999 7000 compute\nprocess GPU-a 99999998 1000 compute\n"

    assert gpus(tmp_path, said, [os.getpid()], ["GPU-a"])[0]["memory_bytes"] == 8000


def test_a_driver_that_does_not_say_leaves_all_that_is_used(tmp_path: Path) -> None:
    said = GPUS + f"process GPU-a {os.getpid()} {2**64 - 1} compute\n"

    assert gpus(tmp_path, said, [os.getpid()], ["GPU-a"])[0]["memory_bytes"] == 30000


@pytest.mark.parametrize("said", [GPUS + "fail GPU-a 15\n", "init 9\n", ""])
def test_a_gpu_that_does_not_answer_is_left_out(tmp_path: Path, said: str) -> None:
    assert gpus(tmp_path, said, [os.getpid()], ["GPU-a", "GPU-none"]) == []


def test_without_slots_the_library_is_not_even_looked_for(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_nvml, "open_nvml", lambda: pytest.fail("it was"))

    assert usage.Meter().sample([os.getpid()])["gpus"] == []


def test_the_oldest_python_can_sample(python: str) -> None:
    script = "import os; from workbench.learner.scribe import usage; print(usage.sample([os.getpid()])['processes'])"
    told = subprocess.run(
        [python, "-c", script], capture_output=True, check=True, env={"PYTHONPATH": str(ROOT)}
    )

    assert told.stdout.strip() == b"1"
