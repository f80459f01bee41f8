"""What a container may and may not do: memory, shared memory, CPUs, capabilities, files that belong to the person."""

from __future__ import annotations

import json
import os
import stat
import subprocess

import pytest

from runners.container.limits import FILE
from runners.container.plan import network_name
from runners.container.runner import ContainerRunner
from runners.shared.container_defaults import DROPPED
from tests.containers.test_images import containers_of
from tests.support.engine import MakeJob
from tests.support.images import BUSYBOX, DEBIAN, USER
from workbench.paths import Home

HUNGRY = "import sys; x = bytearray(300 << 20); print(len(x))"


def test_a_job_that_needs_more_memory_than_it_has_ends_with_its_limit_and_use(make_job: MakeJob) -> None:
    seen = make_job(f'python3 -c "{HUNGRY}"', memory_bytes=64 << 20).launch().until_over()[1]

    assert seen.exit_code == 137
    assert seen.reason is not None
    assert seen.reason.code == "C203"
    assert "64 MiB" in seen.reason.text


def test_a_job_whose_first_process_is_killed_for_want_of_memory_ends_with_its_limit(
    make_job: MakeJob,
) -> None:
    several = "import os, time; os.fork(); os.fork(); x = bytearray(40 << 20); time.sleep(600)"
    command = f'echo 1000 >/proc/1/oom_score_adj; python3 -c "{several}"'
    seen = make_job(command, memory_bytes=64 << 20).launch().until_over()[1]

    assert (seen.exit_code, seen.stopped) == (137, "memory")
    assert seen.reason is not None
    assert (seen.reason.code, seen.reason.text) == (
        "C203",
        "ran out of memory: its container's limit is 64 MiB, the kernel killed it",
    )


def test_memory_that_suffices_is_given(make_job: MakeJob) -> None:
    job = make_job(f'python3 -c "{HUNGRY}"', memory_bytes=512 << 20).launch()

    assert job.until_over()[1].exit_code == 0


def test_shared_memory_is_four_gibibytes_unless_configured(make_job: MakeJob) -> None:
    look = "df -k /dev/shm | tail -1 | while read a size rest; do echo $size; done"
    plain, small = make_job(look).launch(), make_job(look, shm_size_bytes=128 << 20).launch()
    plain.until_over()
    small.until_over()

    assert int(plain.output()) == 4 << 20
    assert int(small.output()) == 128 << 10


def test_capabilities_are_dropped_and_none_are_gained(make_job: MakeJob) -> None:
    job = make_job("grep -E '^(CapBnd|NoNewPrivs)' /proc/self/status").launch()
    job.until_over()
    status = dict(line.split(":\t") for line in job.output().decode().splitlines())
    numbers = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "FSETID": 4, "KILL": 5, "SETPCAP": 8}
    numbers |= {"NET_RAW": 13, "MKNOD": 27, "SETFCAP": 31}

    assert set(numbers) == set(DROPPED)
    assert [name for name, bit in numbers.items() if int(status["CapBnd"], 16) >> bit & 1] == []
    assert status["NoNewPrivs"] == "1"


@pytest.mark.parametrize("image", [DEBIAN, BUSYBOX])
def test_a_command_starts_in_the_process_state_that_docker_run_gives(make_job: MakeJob, image: str) -> None:
    fields = "Umask|Uid|Gid|Groups|NSpgid|NSsid|SigBlk|SigIgn|Cap.*|NoNewPrivs|Seccomp"
    look = f"grep -E '^({fields}):' /proc/self/status; cat /proc/self/oom_score_adj; cut -d' ' -f18,19 /proc/self/stat"
    look += "; for number in 0 1 2 3 4 5 6 7 8 9; do [ -e /proc/$$/fd/$number ] && echo $number; done; ulimit -c; true"
    options = [option for name in DROPPED for option in ("--cap-drop", name)]
    argv = ["docker", "run", "--rm", *options, "--security-opt", "no-new-privileges", image, "sh", "-c", look]

    job = make_job(look, image=image, setup="true").launch()

    assert job.until_over()[1].exit_code == 0
    assert job.output().decode() == subprocess.run(argv, capture_output=True, check=True, text=True).stdout


@pytest.mark.parametrize("image", [DEBIAN, BUSYBOX])
def test_a_command_starts_while_processes_end_that_the_setup_left(make_job: MakeJob, image: str) -> None:
    setup = "(while :; do (sleep 0.01 &) ; sleep 0.01; done) & true"

    job = make_job("echo started", image=image, setup=setup).launch()

    seen = job.until_over()[1]
    assert (seen.exit_code, job.output()) == (0, b"started\n"), seen.reason


def test_locked_memory_and_stack_are_raised_as_far_as_the_engine_may(make_job: MakeJob, home: Home) -> None:
    limits = "ulimit -l; ulimit -s"
    may = {"memlock": "-1:-1", "stack": "67108864:67108864"}
    wanted = [name for name, value in may.items() if _starts("--ulimit", f"{name}={value}")]
    (home.path / FILE).unlink(missing_ok=True)  # as on an engine that nobody has tried yet
    first, second = make_job(limits).launch(), make_job(limits).launch()
    for job in (first, second):
        assert job.until_over()[1].exit_code == 0

    locked, stack = first.output().decode().split()
    recorded = json.loads((home.path / FILE).read_text())

    assert (locked == "unlimited") == ("memlock" in wanted)
    assert (stack == str(64 << 10)) == ("stack" in wanted)
    assert second.output() == first.output()
    assert list(recorded.values()) == [wanted]


def test_trying_the_limits_leaves_the_home_closed_to_others(make_job: MakeJob, home: Home) -> None:
    (home.path / FILE).unlink(missing_ok=True)
    home.path.chmod(0o700)

    make_job("true").launch().until_over()

    assert (home.path / FILE).exists()
    assert stat.S_IMODE(home.path.stat().st_mode) == 0o700


def test_an_engine_that_may_no_longer_raise_a_limit_is_asked_anew(make_job: MakeJob, home: Home) -> None:
    file = home.path / FILE
    file.unlink(missing_ok=True)
    make_job("true").launch().until_over()
    found = json.loads(file.read_text())
    if "memlock" in next(iter(found.values())):
        pytest.skip("the engine here may raise all limits")
    file.write_text(json.dumps({key: ["memlock", "stack"] for key in found}))

    seen = make_job("true").launch().until_over()[1]
    again = make_job("true").launch().until_over()[1]

    assert seen.reason is not None
    assert seen.reason.code == "S101"  # so that the platform's restarts try it again
    assert again.exit_code == 0


def _starts(*options: str) -> bool:
    argv = ["docker", "run", "--rm", *options, DEBIAN, "true"]
    return subprocess.run(argv, capture_output=True).returncode == 0


def test_the_engine_is_not_to_be_reached_from_inside(make_job: MakeJob) -> None:
    job = make_job("test -e /var/run/docker.sock && echo there; true").launch()
    job.until_over()

    assert job.output() == b""


def test_files_belong_to_the_person_whoever_wrote_them(
    make_job: MakeJob, runner: ContainerRunner, home: Home
) -> None:
    command = (
        "id -u > $RESULT_DIR/who; mkdir $CHECKPOINT_DIR/deep; touch $CHECKPOINT_DIR/deep/file; echo ready"
    )
    job = make_job(command + "; while :; do sleep 1; done", image=USER).launch()
    job.until_printed(b"ready")
    job.stop("kill").until_over()

    folder = home.job(job.request.attempt.job_id)

    assert (folder.results / "who").read_text() == "1234\n"
    paths = [folder.results / "who", folder.checkpoints / "deep", folder.checkpoints / "deep" / "file"]
    assert [path.stat().st_uid for path in paths] == [os.getuid()] * 3


def networks_of(job_id: str) -> list[str]:
    """Return the names of a job's networks."""
    argv = ["docker", "network", "ls", "--format", "{{.Name}}", "--filter", f"label=fabric.job={job_id}"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()


def test_nothing_is_left_over_after_remove(make_job: MakeJob, runner: ContainerRunner, home: Home) -> None:
    job = make_job("touch file; echo ready; while :; do sleep 1; done", image=USER, learners=2).launch()
    job.until_printed(b"ready", 1)
    attempt = job.request.attempt

    runner.remove(attempt)

    assert (containers_of(attempt.job_id), networks_of(attempt.job_id)) == ([], [])
    # The code's copy stays for who deletes the job, who must be able to.
    assert (home.job(attempt.job_id).attempt(1).model(1) / "file").stat().st_uid == os.getuid()


def test_a_network_that_somebody_uses_keeps_no_files_from_their_owner(
    make_job: MakeJob, runner: ContainerRunner, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runners.container.cleanup.NETWORK_SECONDS", 0.0)
    job = make_job("touch file; echo ready; while :; do sleep 1; done", image=USER, learners=2).launch()
    job.until_printed(b"ready", 1)
    attempt = job.request.attempt
    argv = ["docker", "run", "-d", "--network", network_name(attempt), USER, "sleep", "1000"]
    other = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
    try:
        runner.remove(attempt)

        assert (home.job(attempt.job_id).attempt(1).model(1) / "file").stat().st_uid == os.getuid()
        assert networks_of(attempt.job_id) == [network_name(attempt)]
    finally:
        subprocess.run(["docker", "rm", "-f", other], capture_output=True, check=True)
    runner.remove(attempt)
    assert networks_of(attempt.job_id) == []


def test_usage_is_that_of_the_processes_inside(make_job: MakeJob, home: Home) -> None:
    program = "import time; x = b'x' * (200 << 20); until = time.time() + 5\nwhile time.time() < until: pass"
    job = make_job(f'python3 -c "{program}"').launch()
    job.until_over()
    records = home.job(job.request.attempt.job_id).attempt(1).learner(1).records.read_text().splitlines()

    samples = [one for one in map(json.loads, records) if one.get("kind") == "usage"]

    assert samples
    assert max(sample["memory_bytes"] for sample in samples) > 200 << 20
    assert max(sample["cpu_percent"] for sample in samples) > 5
