"""What a slot of an experiment of Determined is where the job goes: a GPU, or a process on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from backends.contract.host import Backend, BackendOptions
from backends.local.backend import LocalBackend
from workbench.errors import UsageError
from workbench.manifest.builder.params import SLOTS_VARIABLE
from workbench.paths import Home
from workbench.services.backends.placement import learners_of_cluster, may_get_gpu
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
    most: int | None = None

    def gpus_of_largest_machine(self) -> int | None:
        return self.most


def test_slots_that_a_file_names_stay_gpus_in_a_cluster_that_may_get_nodes_with_some() -> None:
    assert may_get_gpu(Cluster(BackendOptions("c", "kubernetes")))


@pytest.mark.parametrize(
    ("slots", "most", "learners"),
    [(16, 8, 2), (16, 16, 1), (12, 8, 2), (16, 6, 4), (7, 4, 7), (16, None, 1), (16, 0, 1)],
)
def test_the_slots_of_a_trial_are_divided_where_no_node_has_so_many(
    slots: int, most: int | None, learners: int
) -> None:
    cluster = Cluster(BackendOptions("c", "kubernetes"))
    cluster.most = most

    found, why = learners_of_cluster(slots, cluster)

    assert found == learners
    assert learners == 1 or why == f"no node has more than {most}"


def test_the_configuration_says_before_any_node_how_many_slots_a_pod_has(clean_environment: Path) -> None:
    (clean_environment / "config.toml").write_text("[experiments]\nmax_slots_per_pod = 8\n")
    cluster = Cluster(BackendOptions("c", "kubernetes"))
    cluster.most = 4

    assert learners_of_cluster(32, cluster) == (4, "[experiments] max_slots_per_pod = 8")
    assert learners_of_cluster(5, cluster)[0] == 1
    with pytest.raises(UsageError, match="12 slots cannot be divided among pods with 8 slots each"):
        learners_of_cluster(12, cluster)


def test_a_trial_that_is_to_be_on_one_machine_stays_one_learner(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_gpus(monkeypatch, 8)

    text = EXPERIMENT + "resources: {slots_per_trial: 4, is_single_node: true}\n"
    found = prepared(home, text)

    assert (found.loaded.spec.learners, found.loaded.spec.gpus, found.warnings) == (1, 4, ())


def test_learners_of_the_command_line_share_the_slots_of_the_file_and_all_of_them_have_to_end(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_gpus(monkeypatch, 8)
    text = EXPERIMENT + "resources: {slots_per_trial: 4}\n"

    spec = prepared(home, text, "learners=2").loaded.spec
    assert (spec.learners, spec.gpus, spec.ends_when) == (2, 2, "all")
    spec = prepared(home, text, "learners=2", "gpus=4", "ends_when=first").loaded.spec
    assert (spec.learners, spec.gpus, spec.ends_when) == (2, 4, "first")
    spec = prepared(home, EXPERIMENT, "learners=2").loaded.spec
    assert (spec.learners, spec.gpus) == (2, 1)
