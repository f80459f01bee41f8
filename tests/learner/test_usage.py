"""Usage samples of real processes, and of GPUs that a stub of NVIDIA's library pretends."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.quick.metrics.costs import loops
from tests.stubs import Gpus, pretend
from tests.support.waiting import patience, until
from workbench.learner.gpu import nvml as gpu_nvml
from workbench.learner.journal.launch_document import LaunchDocument
from workbench.learner.journal.output import PROCESSES_FILE
from workbench.learner.platform import process_table, system
from workbench.learner.platform.processes import Tree
from workbench.learner.scribe import usage
from workbench.learner.scribe.masking import Mask
from workbench.learner.scribe.process import is_network_own

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
        process.communicate(timeout=patience())


IDLE = "import sys; print('ready', flush=True); sys.stdin.read()"
HOLDS_64_MIB = "import sys; held = b'x' * (64 << 20); print('ready', flush=True); sys.stdin.read()"
SHARES_64_MIB = """
import os, sys
held = b'x' * (64 << 20)
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    os.close(writer)
    os.read(reader, 1)
    os._exit(0)
print('ready', flush=True)
print(child, flush=True)
sys.stdin.read()
os.close(writer)
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

VANISH = """
import os, signal, sys, threading, time
def churn():
    while not over:
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            if os.fork() == 0:
                signal.pause()
            signal.pause()
        try:
            os.setpgid(pid, pid)
        except OSError:
            pass
        time.sleep(0.002)
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
over = []
churning = threading.Thread(target=churn)
churning.start()
print('ready', flush=True)
sys.stdin.read()
over.append(True)
churning.join()
"""


def spend(meter: usage.Meter, pids: list[int], seconds: float) -> dict[str, Any]:
    """Sample when the process has used so much CPU more."""
    path = Path(f"/proc/{pids[0]}/stat")

    def used() -> float:
        return int(path.read_text().rpartition(")")[2].split()[11]) / os.sysconf("SC_CLK_TCK")

    first = used()
    until(lambda: used() - first >= seconds, lambda: f"{seconds} s of CPU: {used() - first} are used")
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


@pytest.mark.skipif(not system.LINUX, reason="disks and CPU of a tree are read from /proc here")
def test_an_idle_child_that_has_gone_together_with_its_parent_counts_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    top = usage._Process((9, 1), 1, 1.0, 0.0, 0, (0, 0))
    parent = usage._Process((10, 1), 9, 1.0, 0.0, 0, (0, 100))
    idle = usage._Process((11, 2), 10, 0.0, 0.0, 0, (0, 0))
    top_after = usage._Process((9, 1), 1, 3.0, 1.0, 0, (0, 1100))
    samples = iter([[top, parent, idle], [top_after]])
    monkeypatch.setattr(usage, "_read", lambda _pids: next(samples))
    meter = usage.Meter()
    found = []
    for now in (100.0, 110.0):
        monkeypatch.setattr(time, "monotonic", lambda now=now: now)
        sample = meter.sample([9, 10, 11])
        found.append((sample["cpu_percent"], sample.get("disk_write_bytes_per_second")))

    assert found == [(0.0, None), (10.0, 100.0)]


class FailingTree(Tree):
    """The processes of a tree, of which one cannot be read whenever it is asked to fail."""

    fails = False

    def pids(self) -> list[int]:
        if self.fails:
            raise KeyError("gone")
        return super().pids()


def test_a_sample_that_fails_is_noted_once_and_costs_no_later_one(start: Start) -> None:
    process = start(BUSY)
    tree = FailingTree(os.getpid(), without=())
    tree.fails = True
    sampler = usage.Sampler(tree, [], 0.01)
    try:
        found = next_records(sampler)
        assert [(each["kind"], each["level"]) for each in found] == [("note", "warning")]
        assert "a sample of what the learner uses failed (KeyError: 'gone')" in found[0]["text"]
        tree.fails = False
        found = next_records(sampler)
        assert {each["kind"] for each in found} == {"usage"}
        assert found[0]["processes"] >= 1 and process.poll() is None
    finally:
        sampler.close()


def next_records(sampler: usage.Sampler) -> list[dict[str, Any]]:
    assert select.select([sampler.pipe], [], [], patience())[0], "no record came"
    return sampler.take()


@pytest.mark.skipif(not system.LINUX, reason="processes are read from /proc here")
def test_samples_survive_processes_that_vanish_at_any_instant(start: Start) -> None:
    process = start(VANISH)
    sampler = usage.Sampler(Tree(process.pid), [], 0.001)
    try:
        records: list[dict[str, Any]] = []
        while len(records) < 200:
            records += next_records(sampler)
    finally:
        sampler.close()
    assert {each["kind"] for each in records} == {"usage"}


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

    assert loops(lambda: [meter.sample(pids) for _ in range(20)]) < 12


WRITES = """
import os, sys
file = open(sys.argv[1] if len(sys.argv) > 1 else 'held', 'wb')
print('ready', flush=True)
sys.stdin.readline()
file.write(b'x' * (4 << 20)); file.flush(); os.fsync(file.fileno())
print('written', flush=True)
sys.stdin.read()
"""


def counts_disk_writes(folder: Path) -> bool:
    """Whether what is written into a folder is counted: not in memory, and not on every kernel."""

    def written() -> int:
        lines = Path("/proc/self/io").read_text().splitlines()
        return {name: int(count) for name, count in (line.split(": ") for line in lines)}["write_bytes"]

    if not Path("/proc/self/io").exists():
        return False
    before = written()
    with (folder / "probe").open("wb") as file:
        file.write(b"x" * (1 << 20))
        file.flush()
        os.fsync(file.fileno())
    return written() > before


@pytest.fixture
def disk() -> Iterator[Path]:
    """A folder on a disk, where the usual one for temporary files may be in memory."""
    with tempfile.TemporaryDirectory(prefix="fab-d", dir="/var/tmp") as folder:
        yield Path(folder)


def test_disk_is_what_was_written_since_the_last_sample(
    start: Start, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not counts_disk_writes(disk):
        pytest.skip("what is written here is counted nowhere")
    monkeypatch.chdir(disk)
    process = start(WRITES)
    meter = usage.Meter()
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: 100.0)
        first = meter.sample([process.pid])
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"go\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"written\n"
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: 102.0)
        second = meter.sample([process.pid])

    assert "disk_write_bytes_per_second" not in first
    assert 2 << 20 <= second["disk_write_bytes_per_second"] < 3 << 20


def test_what_an_ended_child_wrote_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parent = usage._Process((10, 1), 1, 1.0, 0.0, 0, (0, 100))
    child = usage._Process((11, 2), 10, 1.0, 0.0, 0, (0, 4000))
    parent_after = usage._Process((10, 1), 1, 1.0, 0.0, 0, (0, 5100))  # 1000 more, and the child's in all
    samples = iter([[parent, child], [parent_after], [parent_after]])
    monkeypatch.setattr(usage, "_read", lambda _pids: next(samples))
    meter = usage.Meter()
    found = []
    for now in (100.0, 110.0, 120.0):
        monkeypatch.setattr(time, "monotonic", lambda now=now: now)
        found.append(meter.sample([10, 11]).get("disk_write_bytes_per_second"))

    assert found == [None, 100.0, 0.0]


def test_where_a_process_may_not_be_asked_disks_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = usage._Process((10, 1), 1, 1.0, 0.0, 0, None)
    monkeypatch.setattr(usage, "_read", lambda _pids: [unknown])
    meter = usage.Meter()

    assert [name for _ in range(2) for name in meter.sample([10]) if name.startswith("disk")] == []


def test_a_containers_group_counts_its_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new, old = tmp_path / "job", tmp_path / "memory" / "job"
    for group in (new, old, tmp_path / "blkio" / "job"):
        group.mkdir(parents=True)
        (group / "cgroup.procs").write_text("")
    (new / "io.stat").write_text("8:0 rbytes=10 wbytes=20 rios=1 wios=1\n8:16 rbytes=1 wbytes=2\n")
    counters = "8:0 Read 30\n8:0 Write 40\n8:0 Sync 1\n8:0 Total 70\nTotal 70\n"
    (tmp_path / "blkio" / "job" / "blkio.throttle.io_service_bytes").write_text(counters)
    monkeypatch.setattr(process_table, "_ROOT", str(tmp_path))
    found = []
    for group in (new, old, tmp_path / "none"):
        (tmp_path / "cgroup").write_text(str(group / "cgroup.procs"))
        tree = process_table.ContainerTree(str(tmp_path))
        tree.pids()
        found.append(tree.disk_bytes())

    assert found == [(11, 22), (30, 40), None]


NETWORK = """\
Inter-|   Receive                       |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets
    lo:    5000      10    0    0    0     0          0         0     5000      10
  eth0:    1000      10    0    0    0     0          0         0      200      10
"""


@pytest.mark.skipif(not system.LINUX, reason="networks are told apart by /proc")
def test_the_machines_network_is_not_taken_for_the_jobs(start: Start) -> None:
    process = start(IDLE)
    meter = usage.Meter()
    names = [name for _ in range(2) for name in meter.sample([process.pid])]

    assert [name for name in names if name.startswith("network")] == []


@pytest.mark.skipif(not system.LINUX, reason="networks are told apart by /proc")
def test_a_network_of_its_own_is_counted_without_what_goes_round(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start(IDLE)
    counters = iter((NETWORK, NETWORK.replace("1000", "3000").replace(" 200 ", " 300 ")))
    monkeypatch.setattr(system, "read_text", lambda _path: next(counters))
    meter = usage.Meter(is_network_own=True)
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    meter.sample([process.pid])
    monkeypatch.setattr(time, "monotonic", lambda: 110.0)
    record = meter.sample([process.pid])

    assert record["network_receive_bytes_per_second"] == 200.0
    assert record["network_send_bytes_per_second"] == 10.0


@pytest.mark.skipif(not system.LINUX, reason="networks are told apart by /proc")
def test_a_process_in_another_network_is_distinguished_from_ours(start: Start) -> None:
    process = start(IDLE)
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-Urn", "true"], check=False).returncode:
        pytest.skip("no network namespace can be made here")
    other = subprocess.Popen(["unshare", "-Urn", "cat"], stdin=subprocess.PIPE)
    try:
        ours = "/proc/self/net/dev"
        until(lambda: not usage._is_same_file(f"/proc/{other.pid}/net/dev", ours))
        assert usage._is_same_file(f"/proc/{process.pid}/net/dev", ours)
    finally:
        other.communicate()


@pytest.mark.parametrize(
    ("hosts", "is_own"), [([], False), (["other"], False), ([os.uname().nodename], True)]
)
def test_a_pods_network_is_its_own_unless_it_has_the_nodes_name(hosts: list[str], is_own: bool) -> None:
    assert is_network_own(LaunchDocument({"learner_hosts": hosts})) is is_own


def test_processes_are_listed_with_their_parents_and_without_secrets(start: Start) -> None:
    if not system.LINUX:
        pytest.skip("command lines are read from /proc")
    process = start(IDLE + "  # hunter2hunter2")
    meter = usage.Meter()
    meter.sample([process.pid])
    (row,) = meter.processes(Mask(["hunter2hunter2"]))["processes"]

    assert (row["pid"], row["parent"], row["user"]) == (process.pid, os.getpid(), system.user_name())
    assert row["memory_bytes"] > 1 << 20
    assert "sys.stdin.read()" in row["command"]
    assert "hunter2" not in json.dumps(meter.processes(Mask(["hunter2hunter2"])))
    assert "hunter2" in json.dumps(meter.processes())


def test_of_very_many_processes_only_the_number_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [usage._Process((10_000_000 + n, 1), 1, 0.0, 0.0, 0) for n in range(usage.MOST_PROCESSES + 7)]
    monkeypatch.setattr(usage, "_read", lambda _pids: many)
    meter = usage.Meter()
    meter.sample([1])
    listed = meter.processes()

    assert (len(listed["processes"]), listed["omitted"]) == (usage.MOST_PROCESSES, 7)


def test_gpu_memory_is_listed_by_process(tmp_path: Path) -> None:
    mine = os.getpid()
    pretended = Gpus(tmp_path / "gpus.txt").only(GPUS.splitlines())
    pretended.say(f"process GPU-a {mine} 20000 compute").say(f"process GPU-b {mine} 500 compute")
    script = (
        "import json, sys\nfrom workbench.learner.scribe import usage\nmeter = usage.Meter()\n"
        f"meter.sample([{mine}], ['GPU-a', 'GPU-b'])\nprint(json.dumps(meter.processes()['processes']))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        check=True,
        env={**pretended.env(), "PYTHONPATH": str(ROOT)},
    )

    assert json.loads(ran.stdout)[0]["gpu_memory_bytes"] == 20500


class OwnTree:
    """The tree of one process alone."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def pids(self) -> list[int]:
        return [self._pid]


def test_the_list_of_processes_is_overwritten_and_goes_with_the_learner(start: Start, tmp_path: Path) -> None:
    process = start(BUSY)
    sampler = usage.Sampler(OwnTree(process.pid), [], 0.02, folder=str(tmp_path))  # type: ignore[arg-type] # stands in for a tree
    file = tmp_path / PROCESSES_FILE
    times: set[int] = set()

    def was_written_thrice() -> bool:
        times.add(json.loads(file.read_text().split("\n")[0])["time"])
        return len(times) >= 3

    until(was_written_thrice, despite=(OSError, ValueError))  # not there yet, or half of a line
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(file.read_text()) < 1000

    sampler.end()
    assert not file.exists()
    sampler._list_processes()
    assert not file.exists()


GPU_SCRIPT = """
import json, sys
from workbench.learner.scribe import usage
print(json.dumps(usage.Meter().sample(json.loads(sys.argv[1]), json.loads(sys.argv[2]))["gpus"]))
"""


def gpus(folder: Path, lines: str, pids: list[int], slots: list[str]) -> Any:
    pretended = Gpus(folder / "gpus.txt").only(lines.splitlines())
    ran = subprocess.run(
        [sys.executable, "-c", GPU_SCRIPT, json.dumps(pids), json.dumps(slots)],
        capture_output=True,
        check=True,
        env={**pretended.env(), "PYTHONPATH": str(ROOT)},
    )
    return json.loads(ran.stdout)


GPUS = """\
gpu GPU-a 80000 30000 97 60 300000 400000 NVIDIA A100
gpu GPU-b 80000 500 0 40 60000 400000 NVIDIA A100
gpu GPU-c 80000 9000 50 40 60000 400000 NVIDIA A100
mig GPU-c MIG-1 10000 4000
"""


def test_gpu_memory_is_that_of_our_processes(tmp_path: Path) -> None:
    mine = os.getpid()
    lines = GPUS + f"process GPU-a {mine} 20000 compute\nprocess GPU-a 1 10000 compute\n"

    whole = {"memory_limit_bytes": 80000, "power_limit_watts": 400.0}
    assert gpus(tmp_path, lines, [mine], ["GPU-a", "GPU-b"]) == [
        {"uuid": "GPU-a", "memory_bytes": 20000, "utilization_percent": 97.0,
         "temperature_celsius": 60.0, "power_watts": 300.0, **whole},
        {"uuid": "GPU-b", "memory_bytes": 0, "utilization_percent": 0.0,
         "temperature_celsius": 40.0, "power_watts": 60.0, **whole},
    ]  # fmt: skip


def test_gpus_answer_several_threads_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretended = pretend(tmp_path / "gpus.txt", monkeypatch)
    for number in range(8):
        pretended.add(f"GPU-{number}")

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: gpu_nvml.read_gpus().slots, range(200)))

    assert {tuple(slot["uuid"] for slot in answer) for answer in answers} == {
        tuple(f"GPU-{number}" for number in range(8))
    }


def test_limits_of_gpus_are_recorded_once(tmp_path: Path) -> None:
    pretended = Gpus(tmp_path / "gpus.txt").only(GPUS.splitlines())
    script = (
        "import json\nfrom workbench.learner.scribe import usage\nmeter = usage.Meter()\n"
        "print(json.dumps([meter.sample([], ['GPU-a'])['gpus'][0].get('power_limit_watts') for _ in range(3)]))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        check=True,
        env={**pretended.env(), "PYTHONPATH": str(ROOT)},
    )

    assert json.loads(ran.stdout) == [400.0, None, None]


def test_the_heat_at_which_a_gpu_clocks_itself_down_is_a_limit_where_the_driver_says_it(
    tmp_path: Path,
) -> None:
    lines = GPUS + "slowdown GPU-a 92\n"

    found = gpus(tmp_path, lines, [os.getpid()], ["GPU-a", "GPU-b"])

    assert [one.get("temperature_limit_celsius") for one in found] == [92.0, None]


def test_a_driver_without_the_question_for_a_limit_leaves_it_out() -> None:
    class OldLibrary:
        """A driver's library of before: it has no thresholds of temperature."""

        def __getattr__(self, name: str) -> Any:
            if name == "nvmlDeviceGetTemperatureThreshold":
                raise AttributeError(name)
            return lambda *_arguments: 0

    assert set(gpu_nvml.Nvml(OldLibrary()).limits("GPU-a")) == {"memory_limit_bytes", "power_limit_watts"}


def test_the_first_record_of_a_learner_says_the_limits_of_its_gpus(start: Start, tmp_path: Path) -> None:
    process = start(IDLE)
    pretended = Gpus(tmp_path / "gpus.txt").only(GPUS.splitlines())
    script = (
        f"class Own:\n    def pids(self):\n        return [{process.pid}]\nimport json, select\n"
        "from workbench.learner.scribe import usage\nsampler = usage.Sampler(Own(), ['GPU-a'], 0.01)\n"
        "select.select([sampler.pipe], [], [])\nprint(json.dumps(sampler.take()[0]['gpus'][0]))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        check=True,
        timeout=patience(),
        env={**pretended.env(), "PYTHONPATH": str(ROOT)},
    )

    found = json.loads(ran.stdout)
    assert (found["memory_limit_bytes"], found["power_limit_watts"]) == (80000, 400.0)


def test_a_slice_of_a_gpu_has_memory_and_no_utilisation_heat_or_power(tmp_path: Path) -> None:
    mine = os.getpid()
    lines = GPUS + f"process MIG-1 {mine} 3000 compute\n"

    expected = {
        "uuid": "MIG-1", "memory_bytes": 3000, "utilization_percent": None, "memory_limit_bytes": 10000,
    }  # fmt: skip
    assert gpus(tmp_path, lines, [mine], ["MIG-1"]) == [expected]


def test_slices_of_one_gpu_are_two_each_with_its_own_memory(tmp_path: Path) -> None:
    mine = os.getpid()
    lines = (
        GPUS
        + f"mig GPU-c MIG-2 20000 9000\nprocess MIG-1 {mine} 3000 compute\nprocess MIG-2 {mine} 8000 compute\n"
    )

    found = gpus(tmp_path, lines, [mine], ["MIG-1", "MIG-2"])

    assert [(one["uuid"], one["memory_bytes"], one["memory_limit_bytes"]) for one in found] == [
        ("MIG-1", 3000, 10000),
        ("MIG-2", 8000, 20000),
    ]


def test_in_a_container_pids_are_the_hosts_and_all_is_ours(tmp_path: Path) -> None:
    lines = GPUS + "process GPU-a 99999999 7000 compute\nprocess GPU-a 99999998 1000 compute\n"

    assert gpus(tmp_path, lines, [os.getpid()], ["GPU-a"])[0]["memory_bytes"] == 8000


def test_a_driver_that_does_not_say_leaves_all_that_is_used(tmp_path: Path) -> None:
    lines = GPUS + f"process GPU-a {os.getpid()} {2**64 - 1} compute\n"

    assert gpus(tmp_path, lines, [os.getpid()], ["GPU-a"])[0]["memory_bytes"] == 30000


@pytest.mark.parametrize("lines", [GPUS + "fail GPU-a 15\n", "init 9\n", ""])
def test_a_gpu_that_does_not_answer_is_left_out(tmp_path: Path, lines: str) -> None:
    assert gpus(tmp_path, lines, [os.getpid()], ["GPU-a", "GPU-none"]) == []


def test_without_slots_the_library_is_not_even_looked_for(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_nvml, "open_nvml", lambda: pytest.fail("it was"))

    assert usage.Meter().sample([os.getpid()])["gpus"] == []


def test_the_oldest_python_can_sample(python: str) -> None:
    sampled = "usage.Meter().sample([os.getpid()])['processes']"
    script = f"import os; from workbench.learner.scribe import usage; print({sampled})"
    ran = subprocess.run(
        [python, "-c", script], capture_output=True, check=True, env={"PYTHONPATH": str(ROOT)}
    )

    assert ran.stdout.strip() == b"1"
