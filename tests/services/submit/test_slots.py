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
from workbench.services.backends import placement
from workbench.services.backends.placement import may_get_gpu
from workbench.services.submit.options import RunOptions, read_manifest
from workbench.services.submit.prepare import JobSubmission, _with_slots, prepare
from workbench.spec import JobSpec

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
    listings = 0
    openings = 0

    def gpus_of_largest_machine(self) -> int | None:
        self.listings += 1
        return self.most

    def opened(self, options: BackendOptions) -> Cluster:
        self.openings += 1
        return self


def test_slots_that_a_file_names_stay_gpus_in_a_cluster_that_may_get_nodes_with_some() -> None:
    assert may_get_gpu(Cluster(BackendOptions("c", "kubernetes")))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The cluster that jobs go to, with nodes of 6 GPUs now."""
    made = Cluster(BackendOptions("c", "kubernetes"))
    made.most = 6
    monkeypatch.setattr(placement, "backend_options", lambda name, **within: made.options)
    monkeypatch.setattr(placement, "open_backend", made.opened)
    return made


def planned(text: str, *overrides: str) -> tuple[JobSpec, tuple[str, ...]]:
    """Return a job of an experiment with its slots, and the notes of them."""
    Path("x.yaml").write_text(text)
    options = RunOptions(manifest="x.yaml", backend="c", overrides=overrides)
    loaded, notes = _with_slots(read_manifest(options), options, lambda: ["c"])
    return loaded.spec, notes


WAITS = "no node has more than 6 GPUs now: the trial waits for one with 12"
DIVIDES = "; [experiments] max_slots_per_pod or --set learners=N divides it"


@pytest.mark.parametrize(
    ("resources", "overrides", "note"),
    [
        ("slots_per_trial: 12", (), WAITS + DIVIDES),
        ("slots_per_trial: 12", ("learners=1",), WAITS),
        ("slots_per_trial: 12, is_single_node: true", (), WAITS),
        ("slots_per_trial: 6", (), ""),
    ],
)
def test_a_trial_that_no_node_has_room_for_now_waits_for_one_that_has(
    resources: str, overrides: tuple[str, ...], note: str, cluster: Cluster
) -> None:
    spec, notes = planned(EXPERIMENT + f"resources: {{{resources}}}\n", *overrides)

    assert (spec.learners, spec.ends_when) == (1, "first")
    assert notes == ((note,) if note else ())


@pytest.mark.parametrize("most", [None, 0])
def test_nothing_is_noted_of_nodes_that_are_not_known(most: int | None, cluster: Cluster) -> None:
    cluster.most = most

    assert planned(EXPERIMENT + "resources: {slots_per_trial: 12}\n")[1] == ()


def test_the_configuration_says_how_many_slots_a_pod_has(clean_environment: Path, cluster: Cluster) -> None:
    (clean_environment / "config.toml").write_text("[experiments]\nmax_slots_per_pod = 4\n")
    text = EXPERIMENT + "resources: {slots_per_trial: 12%s}\n"

    spec, notes = planned(text % "")

    assert (spec.learners, spec.gpus, spec.ends_when) == (3, 4, "all")
    assert notes == ("the 12 slots are 3 learners with 4 GPUs each: [experiments] max_slots_per_pod = 4",)
    assert planned(text % "", "learners=1")[0].learners == 1
    assert planned(text % ", is_single_node: true")[0].learners == 1
    assert planned(text % "", "learners=6")[0].gpus == 2
    assert planned(EXPERIMENT + "resources: {slots_per_trial: 3}\n")[0].learners == 1
    with pytest.raises(UsageError, match="13 slots cannot be divided among pods with 4 slots each"):
        planned(EXPERIMENT + "resources: {slots_per_trial: 13}\n")


@pytest.mark.parametrize("name", ["deepspeed", "horovod"])
def test_a_launcher_that_works_by_ssh_is_refused_before_a_trial_of_several_learners_starts(
    name: str, clean_environment: Path, cluster: Cluster
) -> None:
    entrypoint = f"python3 -m determined.launch.{name} train.py"
    text = EXPERIMENT.replace("python3 train.py", entrypoint) + "resources: {slots_per_trial: 4}\n"
    refusal = (
        f"the trial has 2 learners, and determined.launch.{name} starts processes on other machines by ssh"
    )

    assert planned(text)[0].learners == 1
    with pytest.raises(UsageError, match=refusal):
        planned(text, "learners=2")
    with pytest.raises(UsageError, match=refusal):
        planned(text, "learners=2", "gpus=1")
    (clean_environment / "config.toml").write_text("[experiments]\nmax_slots_per_pod = 2\n")
    with pytest.raises(UsageError, match=refusal):
        planned(text)


def test_nodes_are_listed_only_where_it_counts(clean_environment: Path, cluster: Cluster) -> None:
    planned(EXPERIMENT + "resources: {slots_per_trial: 1}\n")
    assert cluster.listings == 0

    (clean_environment / "config.toml").write_text("[experiments]\ncpu_slot = false\n")
    before = cluster.openings
    planned(EXPERIMENT)
    planned(EXPERIMENT + "resources: {slots_per_trial: 4}\n", "learners=2")
    assert (cluster.listings, cluster.openings) == (0, before)


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
