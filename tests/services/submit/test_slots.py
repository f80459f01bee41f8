"""What a slot of an experiment of Determined is where the job goes: a GPU, or a process on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from backends.contract.host import Backend, BackendOptions
from backends.local.backend import LocalBackend
from workbench.manifest.builder.params import SLOTS_VARIABLE
from workbench.paths import Home
from workbench.services.backends.placement import may_get_gpu
from workbench.services.submit.options import RunOptions
from workbench.services.submit.prepare import JobSubmission, prepare

EXPERIMENT = """\
name: x
entrypoint: python3 train.py
searcher: {name: single, metric: loss}
"""
BY_DEVICE = """\
environment:
  image: {cpu: for-cpu, cuda: for-cuda}
  environment_variables: {cpu: [ON=cpu], cuda: [ON=cuda]}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with code."""
    (tmp_path / "train.py").write_text("print('trained')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def with_gpus(monkeypatch: pytest.MonkeyPatch, count: int | None) -> None:
    """Have this machine so many GPUs, None for a number that is not known."""
    monkeypatch.setattr(LocalBackend, "gpu_count", lambda self: count)


def prepared(home: Home, text: str, *overrides: str) -> JobSubmission:
    Path("x.yaml").write_text(text)
    return prepare(RunOptions(manifest="x.yaml", runner="process", overrides=overrides), home)


def test_the_slot_of_a_file_that_names_none_is_a_gpu_where_there_is_one(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_gpus(monkeypatch, 2)

    found = prepared(home, EXPERIMENT)

    assert found.loaded.spec.gpus == 1
    assert found.notes == ()


@pytest.mark.parametrize(
    ("count", "why"), [(0, "there is no GPU"), (None, "whether there is a GPU is not known")]
)
def test_it_is_a_process_on_the_cpu_where_no_gpu_is_known(
    count: int | None, why: str, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_gpus(monkeypatch, count)

    found = prepared(home, EXPERIMENT)

    assert found.loaded.spec.gpus == 0
    assert found.loaded.spec.env[SLOTS_VARIABLE] == "[0]"
    (note,) = found.notes
    assert f"the slot is a process on the CPU with no cores of its own: {why}" in note
    assert ("resources.slots_per_trial: 1 asks for one" in note) == (count is None)


def test_a_gpu_that_is_asked_for_by_our_own_name_stays_one(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_gpus(monkeypatch, 0)

    assert prepared(home, EXPERIMENT, "gpus=1").loaded.spec.gpus == 1


@pytest.mark.parametrize("slots", ["", "resources: {slots_per_trial: 1}\n"])
def test_images_and_variables_by_device_are_those_of_what_a_slot_is(
    slots: str, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    for count in (0, 1):
        with_gpus(monkeypatch, count)
        spec = prepared(home, EXPERIMENT + BY_DEVICE + slots, "env.OWN=1").loaded.spec
        found[count] = (spec.framework.version, spec.env["ON"], spec.env["OWN"])

    assert found == {0: ("for-cpu", "cpu", "1"), 1: ("for-cuda", "cuda", "1")}


class Cluster(Backend):
    """A cluster that cannot say whether it will ever have GPUs: some get nodes when these are asked for."""

    type: ClassVar[str] = "kubernetes"
    probe = inventory = open = None  # type: ignore[assignment]


def test_slots_that_a_file_names_stay_gpus_in_a_cluster_that_may_get_nodes_with_some() -> None:
    assert may_get_gpu(Cluster(BackendOptions("c", "kubernetes")))
