"""This machine as a backend: what it finds, and its GPUs (pretended ones) with who uses them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.contract.host import BackendOptions, Finding, Slot
from backends.local.backend import LocalBackend
from backends.local.host import LocalHost
from tests.stubs import GIB, Gpus, pretend
from workbench.learner.platform import leases
from workbench.learner.platform.system import user_name
from workbench.paths import leases_folder

BACKEND = LocalBackend(BackendOptions("local", "local"))


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    return pretend(tmp_path / "gpus", monkeypatch)


@pytest.fixture
def computing() -> Iterator[int]:
    """A process of ours that stands for one that computes on a GPU."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid
    process.communicate(b"\n")


def slots() -> tuple[Slot, ...]:
    return BACKEND.inventory().nodes[0].slots


def findings(subject: str) -> list[Finding]:
    return [finding for finding in BACKEND.probe() if finding.subject.startswith(subject)]


def test_inventory_has_cpus_memory_and_disk() -> None:
    (node,) = BACKEND.inventory().nodes

    assert node.cpus == len(os.sched_getaffinity(0))
    assert 0 < (node.memory_used_bytes or 0) < node.memory_bytes
    assert (node.disk_free_bytes or 0) > 0
    assert 0 <= (node.cpu_percent or 0) <= 100


def test_every_gpu_is_a_slot_with_its_use(gpus: Gpus) -> None:
    gpus.add("GPU-1", used=GIB).add("GPU-2", model="NVIDIA A100")

    first, second = slots()

    assert first == Slot(
        uuid="GPU-1",
        index=0,
        model="NVIDIA Pretended 24GB",
        memory_bytes=24 * GIB,
        memory_used_bytes=GIB,
        utilization_percent=7,
        temperature_celsius=41,
        power_watts=95,
        power_limit_watts=300,
    )
    assert (second.uuid, second.index, second.model, second.free) == ("GPU-2", 1, "NVIDIA A100", True)
    assert BACKEND.inventory().nodes[0].driver == "driver 550.54.15, CUDA 12.4"


def test_a_leased_gpu_names_its_holder_and_a_stale_text_means_nothing(gpus: Gpus) -> None:
    gpus.add("GPU-1").add("GPU-2")
    lease = leases.take(["GPU-2"], str(leases_folder()), '{"owner": "anna@box", "job": "training-abcdefghj"}')
    assert lease is not None
    me = user_name()

    assert [(slot.holder, slot.holder_person, slot.holder_job) for slot in slots()] == [
        ("", "", ""),
        (f"{me} (anna@box)", f"{me} (anna)", "training-abcdefghj"),
    ]
    lease.release()

    assert all(slot.free for slot in slots())


def test_a_foreign_compute_process_makes_a_gpu_busy_and_a_desktop_does_not(
    gpus: Gpus, computing: int
) -> None:
    gpus.add("GPU-1").add("GPU-2").add("GPU-3")
    gpus.say(f"process GPU-1 {computing} {GIB} compute")
    gpus.say(f"process GPU-2 {computing} {GIB} graphics")
    gpus.say(f"process GPU-3 {computing} {100 << 20} compute")

    first, second, third = slots()

    assert first.foreign.endswith(f"(pid {computing}) of {LocalHost().identity().user}")
    assert not first.free
    assert second.free
    assert third.free


def test_a_gpu_that_somebody_keeps_busy_is_not_free_however_little_memory_that_takes(
    gpus: Gpus, computing: int
) -> None:
    gpus.only(
        [
            f"gpu GPU-{at} {24 * GIB} 0 {use} 41 95000 300000 NVIDIA A100"
            for at, use in ((1, 97), (2, 97), (3, 3))
        ]
    )
    gpus.say(f"process GPU-1 {computing} {100 << 20} compute").say(
        f"process GPU-3 {computing} {100 << 20} compute"
    )

    busy, lagging, idle = slots()

    assert f"(pid {computing})" in busy.foreign
    assert lagging.free  # a driver shows the use of a job that has just ended, too
    assert idle.free


def held(uuids: list[str]) -> leases.Lease:
    lease = leases.take(uuids, str(leases_folder()), '{"owner": "anna@box", "job": "training-abcdefghj"}')
    assert lease is not None
    return lease


def at_host() -> list[Slot]:
    """Return the GPUs as the agent of a host has them."""
    host = LocalHost()
    inventory = host.call("inventory", leases_folder=str(leases_folder()))
    host.close()
    return [Slot(**slot) for slot in inventory["slots"]]


def test_a_holder_is_idle_where_nothing_computes_on_its_gpu(gpus: Gpus, computing: int) -> None:
    gpus.only(
        [
            f"gpu GPU-{at} {24 * GIB} 0 {use} 41 95000 300000 NVIDIA A100"
            for at, use in enumerate((0, 0, 3, 0))
        ]
    )
    gpus.say(f"process GPU-1 {computing} {100 << 20} compute")
    lease = held(["GPU-0", "GPU-1", "GPU-2"])

    for found in (slots(), at_host()):
        assert [slot.idle for slot in found] == [True, False, False, None], "the last one is free"
    lease.release()

    assert [slot.idle for slot in slots()] == [None] * 4


def test_a_holder_of_whose_gpu_too_little_is_known_is_not_called_idle(gpus: Gpus, computing: int) -> None:
    gpus.only([f"gpu GPU-{at} {24 * GIB} {GIB} 0 41 95000 300000 NVIDIA A100" for at in range(3)])
    gpus.say(f"mig GPU-1 MIG-a {10 * GIB} 0").say(f"mig GPU-1 MIG-b {10 * GIB} 0")
    gpus.say(f"process MIG-b {computing} {100 << 20} compute").say("unlisted GPU-2")
    gpus.only([line.replace(f"GPU-2 {24 * GIB} {GIB}", f"GPU-2 {24 * GIB} 0") for line in gpus.lines])
    lease = held(["GPU-0", "MIG-a", "MIG-b", "GPU-2"])

    for found in (slots(), at_host()):
        unseen, without_use, busy, unlisted = found
        assert unseen.idle is None, "somebody has its memory who cannot be seen"
        assert without_use.idle is None
        assert busy.idle is False
        assert unlisted.idle is None, "the driver does not list processes"
    lease.release()


def test_slices_of_a_divided_gpu_are_the_slots(gpus: Gpus) -> None:
    gpus.add("GPU-1", model="NVIDIA H100").add("GPU-2")
    gpus.say(f"mig GPU-1 MIG-a {10 * GIB} 0").say(f"mig GPU-1 MIG-b {10 * GIB} {GIB}")

    found = slots()

    assert [(slot.uuid, slot.index) for slot in found] == [("MIG-a", 0), ("MIG-b", 0), ("GPU-2", 1)]
    assert (found[1].memory_bytes, found[1].memory_used_bytes) == (10 * GIB, GIB)
    assert found[0].utilization_percent is None


@pytest.mark.parametrize(("code", "words"), [(15, "is lost"), (16, "requires")])
def test_a_broken_gpu_is_named_and_the_others_stay(gpus: Gpus, code: int, words: str) -> None:
    gpus.add("GPU-1").add("GPU-2").say(f"fail GPU-1 {code}")

    broken, whole = slots()
    (finding,) = (finding for finding in findings("gpu") if finding.level == "wrong")

    assert not broken.free
    assert words in broken.foreign
    assert whole.free
    assert finding.subject == "gpu 0"
    assert finding.remedy


def test_a_driver_that_does_not_answer_is_a_finding_with_its_remedy(gpus: Gpus) -> None:
    gpus.only(["init 18"])
    subprocess_sees = subprocess.run(
        [sys.executable, "-c", PROBE], env=os.environ | gpus.env(), capture_output=True, text=True, check=True
    )

    assert "version mismatch" in subprocess_sees.stdout
    assert "restart the machine" in subprocess_sees.stdout


def test_without_a_library_there_are_simply_no_gpus(tmp_path: Path) -> None:
    seen = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True, cwd=ROOT)

    if "to give" in seen.stdout:
        pytest.skip("this machine has GPUs")
    assert "none lack" in seen.stdout


def test_the_host_reports_the_same_gpus_as_the_backend(gpus: Gpus, computing: int) -> None:
    gpus.add("GPU-1", used=GIB).add("GPU-2").add("GPU-3").add("GPU-4")
    gpus.say(f"mig GPU-2 MIG-a {10 * GIB} 0").say(f"process GPU-3 {computing} {GIB} compute")
    gpus.say("fail GPU-4 15")
    host = LocalHost()

    inventory = host.call("inventory", leases_folder=str(leases_folder()))
    host.close()

    assert [Slot(**slot) for slot in inventory["slots"]][:3] == list(slots())[:3]
    assert inventory["driver"] == BACKEND.inventory().nodes[0].driver
    assert not Slot(**inventory["slots"][3]).free


def test_the_probe_names_each_lack_with_consequence_and_remedy() -> None:
    found = list(BACKEND.probe())

    assert {"python", "environments", "shell", "leases", "disk"} <= {finding.subject for finding in found}
    for finding in found:
        assert finding.level == "ok" or (finding.consequence and finding.found), finding


def test_a_folder_of_leases_that_cannot_be_used_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FABRIC_LEASES", str(tmp_path / "file"))

    (finding,) = findings("leases")

    assert (finding.level, "not a folder" in finding.found) == ("wrong", True)


ROOT = Path(__file__).parents[2]
PROBE = """
from backends.local.backend import LocalBackend
from backends.contract.host import BackendOptions
for finding in LocalBackend(BackendOptions("local", "local")).probe():
    if finding.subject == "gpu":
        print(finding.found, finding.level, finding.remedy)
"""
