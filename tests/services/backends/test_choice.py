"""One of several backends is chosen for a job: by what is free there, and by how much is asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from backends.contract.host import BackendOptions, Inventory, Node, Slot
from tests.services.stored import BOTH, submitted
from workbench.errors import BackendError, BackendUnreachable, FabricError, UnknownName, UsageError
from workbench.job import State
from workbench.manifest import load_text
from workbench.paths import Home
from workbench.services.backends import choice as choice_module
from workbench.services.backends.choice import (
    BackendChoice,
    Candidate,
    Rank,
    fit_of,
    refuse_groups,
    split_names,
)
from workbench.services.backends.placement import ChosenTarget
from workbench.services.cancel import Cancelled
from workbench.spec import JobSpec
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow, TargetRef

GIB = 1 << 30


def spec(**how: object) -> JobSpec:
    """Return a job."""
    text = "name: a\nframework: {name: custom, command: 'true'}\n"
    return replace(load_text(text, "m.yml", environ={}, defaults={}).spec, **how)  # type: ignore[arg-type]


def node(free: int, held: Sequence[str] = (), *, model: str = "A100", cpus: int = 8, broken: int = 0) -> Node:
    """Return a machine with so many free GPUs, others that jobs hold, and some whose memory cannot be read."""
    slots = [
        *(Slot(f"GPU-{at}", at, model, GIB) for at in range(free)),
        *(Slot(f"GPU-h{job}", 50, model, GIB, holder="ada@laptop", holder_job=job) for job in held),
        *(Slot(f"GPU-b{at}", 90 + at, model, 0) for at in range(broken)),
    ]
    return Node("host", cpus, GIB, slots=tuple(slots))


def candidate(name: str, *nodes: Node, note: str = "", **how: object) -> Candidate:
    """Return a backend that has these machines."""
    return Candidate(name, Inventory(nodes, 0, note), **how)  # type: ignore[arg-type]


def best(candidates: Sequence[Candidate], job: JobSpec) -> str:
    """Return which backend fits best, the first one of equal ones."""
    fits = [fit_of(one, job) for one in candidates]
    return min(fits, key=lambda fit: (fit.rank, fit.score)).name


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ("",)),
        ("box", ("box",)),
        ("box1,box2", ("box1", "box2")),
        (" box1 , box2 ,box1", ("box1", "box2")),
        ("ssh://me@a:22,ssh://b", ("ssh://me@a:22", "ssh://b")),
    ],
)
def test_backends_are_named_with_commas_between(text: str, names: tuple[str, ...]) -> None:
    assert split_names(text) == names


@pytest.mark.parametrize("text", ["box,", ",box", "a,,b", ","])
def test_a_comma_without_a_name_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="a name is missing"):
        split_names(text)


@pytest.mark.parametrize(
    ("fit", "gpus", "chosen"),
    [("best", 1, "one"), ("best", 2, "two"), ("best", 3, "four"), ("worst", 1, "four"), ("worst", 4, "four")],
)
def test_a_job_goes_where_its_gpus_are_free_and_the_fewest_or_the_most_are_left(
    fit: str, gpus: int, chosen: str
) -> None:
    candidates = [candidate("two", node(2)), candidate("four", node(4)), candidate("one", node(1))]
    assert best(candidates, spec(gpus=gpus, fit=fit)) == chosen


def test_where_nothing_is_free_the_least_asked_for_beside_its_size_counts() -> None:
    small = candidate("small", node(0, ["a", "b"]), waiting={"c": 1})
    large = candidate("large", node(0, ["d", "e", "f", "g"]), waiting={"h": 1})

    assert best([small, large], spec(gpus=1)) == "large"
    assert fit_of(large, spec(gpus=1)).text == "0 of 4 GPUs are free and 1 asked for"


def test_who_waits_there_comes_before_a_job() -> None:
    waited_for = candidate("waited for", node(2), waiting={"a": 2})
    assert fit_of(waited_for, spec(gpus=1)).rank is Rank.WAITS
    assert best([waited_for, candidate("free", node(1))], spec(gpus=1)) == "free"


def test_gpus_that_jobs_of_this_home_are_about_to_take_are_asked_for_once(store: Store) -> None:
    def row(name: str, at: State) -> JobRow:
        text = f"name: {name}\nframework: {{name: custom, command: 'true'}}\ngpus: 2\n"
        return submitted(store, text, state=at)

    queued, ended = row("queued", State.QUEUED), row("ended", State.COMPLETED)
    begun = row("begun", State.PROCESSING)
    host = candidate("host", node(3, [begun.id]), under_way=(queued, begun, ended))
    lined_up = candidate("host", node(3, [begun.id]), waiting={queued.id: 2}, under_way=(queued, begun))

    assert fit_of(host, spec(gpus=1)).text == "3 of 4 GPUs are free and 2 asked for"
    assert fit_of(lined_up, spec(gpus=1)).text == "3 of 4 GPUs are free and 2 asked for"
    assert fit_of(host, spec(gpus=2)).rank is Rank.WAITS


def test_gpus_that_earlier_jobs_of_a_command_take_are_asked_for() -> None:
    assert fit_of(candidate("host", node(3)), spec(gpus=2), 2).rank is Rank.WAITS
    assert fit_of(candidate("host", node(4)), spec(gpus=2), 2).rank is Rank.STARTS


def test_a_learner_is_not_spread_over_two_machines_of_a_cluster() -> None:
    cluster = candidate("cluster", node(3), node(3))
    assert fit_of(cluster, spec(gpus=4)).rank is Rank.LACKS
    assert fit_of(cluster, spec(gpus=2, learners=2)).rank is Rank.STARTS
    assert fit_of(cluster, spec(gpus=2, learners=3)).rank is Rank.LACKS


def test_a_gpu_whose_memory_cannot_be_read_is_none() -> None:
    assert fit_of(candidate("host", node(1, broken=3)), spec(gpus=2)).text == "has 1 GPU"


def test_a_backend_with_the_type_that_is_asked_for_comes_before_one_without() -> None:
    other, busy = candidate("other", node(4, model="T4")), candidate("busy", node(0, ["a"]))
    assert best([other, busy], spec(gpus=1, gpu_type="A100")) == "busy"
    assert fit_of(other, spec(gpus=1, gpu_type="A100")).rank is Rank.OTHER_TYPE


def test_a_cluster_whose_nodes_may_not_be_listed_comes_after_one_with_free_gpus() -> None:
    unknown = candidate("unknown", note="nodes may not be listed")
    assert fit_of(unknown, spec(gpus=1)).rank is Rank.UNKNOWN
    assert best([unknown, candidate("free", node(1))], spec(gpus=1)) == "free"
    assert best([unknown, candidate("busy", node(0, ["a"]))], spec(gpus=1)) == "unknown"


def test_a_job_without_gpus_goes_where_the_smallest_part_of_the_cpus_is_asked_for(store: Store) -> None:
    text = "name: a\nframework: {name: custom, command: 'true'}\ncpus: 4\n"
    there = submitted(store, text, state=State.PROCESSING)
    small, large = (
        candidate("small", node(0, cpus=4)),
        candidate("large", node(0, cpus=16), under_way=(there,)),
    )

    assert best([small, large], spec()) == "small"
    assert best([small, large], spec(cpus=2.0)) == "large"
    assert fit_of(small, spec(cpus=8.0)).text == "has 4 CPUs"
    assert fit_of(large, spec(cpus=16.0)).rank is Rank.WAITS


def test_one_that_does_not_answer_is_no_choice_unless_it_is_started_for_a_job() -> None:
    silent = Candidate("silent", None, trouble="no route")
    asleep = Candidate("asleep", None, trouble="no route", is_on_demand=True)
    assert fit_of(silent, spec()) == choice_module.Fit(
        "silent", Rank.SILENT, 0.0, "does not answer: no route"
    )
    assert best([silent, asleep], spec()) == "asleep"
    assert best([asleep, candidate("busy", node(0, ["a"]))], spec(gpus=1)) == "busy"


# The choice


@pytest.fixture
def candidates(monkeypatch: pytest.MonkeyPatch) -> dict[str, Candidate]:
    """What each backend has; they are asked in the place of real ones, which every backend's own tests have."""
    found: dict[str, Candidate] = {}

    def ask(backends: Sequence[BackendOptions], cancel: object) -> Iterator[Candidate]:
        return (found[one.name] for one in backends)

    def options(name: str) -> BackendOptions:
        if name not in found:
            raise UnknownName(f"there is no backend '{name}'")
        return BackendOptions(name, "ssh", f"ssh://{name}")

    def choose(name: str, runner: str, spec: JobSpec, **_: object) -> ChosenTarget:
        if runner == name:
            raise UsageError(f"the runner does not work at '{name}'")
        return ChosenTarget(TargetRef(name, "ssh", "process", address=f"ssh://{name}"))

    monkeypatch.setattr(choice_module, "_candidates", ask)
    monkeypatch.setattr(choice_module, "backend_options", options)
    monkeypatch.setattr(choice_module, "choose_target", choose)
    return found


def test_the_note_says_what_the_others_have(home: Home, candidates: dict[str, Candidate]) -> None:
    candidates |= {
        "box1": candidate("box1", node(0, ["a"])),
        "box2": candidate("box2", node(2)),
        "box3": Candidate("box3", None, trouble="no route to host"),
    }
    chosen = BackendChoice(home).choose("box1,box2,box3", "", spec(gpus=1))

    assert chosen.target.backend == "box2"
    assert chosen.notes == (
        "on box2, where 2 of 2 GPUs are free (box1: 0 of 1 GPU is free; box3: does not answer: no route to host)",
    )


def test_the_jobs_of_one_command_share_what_is_free(home: Home, candidates: dict[str, Candidate]) -> None:
    candidates |= {"box1": candidate("box1", node(2)), "box2": candidate("box2", node(3))}
    choice = BackendChoice(home)

    chosen = [choice.choose("box1,box2", "", spec(gpus=1)).target.backend for _ in range(6)]

    assert chosen == ["box1", "box1", "box2", "box2", "box2", "box2"]


def test_a_job_over_several_hosts_counts_at_each_with_its_learners_there(
    store: Store, candidates: dict[str, Candidate]
) -> None:
    text = "name: a\nframework: {name: custom, command: 'true'}\ngpus: 2\nlearners: 3\n"
    submitted(store, text, target=BOTH)
    candidates |= {name: candidate(name, node(4)) for name in ("box1", "box2", "box3")}

    chosen = BackendChoice(store.home).choose("box1,box2,box3", "", spec(gpus=1))

    assert chosen.target.backend == "box2"  # where the fewest are left
    assert "where 4 of 4 GPUs are free and 2 asked for" in chosen.notes[0]
    assert "box3: 4 of 4 GPUs are free; box1: 4 of 4 GPUs are free and 4 asked for" in chosen.notes[0]


def test_a_group_is_not_one_of_several_backends() -> None:
    for where in ("search.backends", "--backend box3,box1+box2"):
        with pytest.raises(UsageError, match=where.replace("+", "[+]")) as refused:
            refuse_groups(["box3", "box1+box2"], where)
        assert "box1+box2 is several hosts together" in refused.value.message
    refuse_groups(["box1+box2"], "alone")
    refuse_groups(["box3", "k8s://me+dev/ns"], "one address")


def test_a_job_goes_where_the_one_before_it_is(home: Home, candidates: dict[str, Candidate]) -> None:
    candidates |= {"box1": candidate("box1", node(4)), "box2": candidate("box2", node(0, ["a"]))}
    near = {"box9": "a is", "box2": "b is, which comes before it"}

    chosen = BackendChoice(home).choose("box1,box2", "", spec(gpus=1), near=near)

    assert chosen.target.backend == "box2"
    assert "on box2, where b is, which comes before it (box1: 4 of 4 GPUs are free)" in chosen.notes


def test_a_backend_that_refuses_the_job_is_passed_over(home: Home, candidates: dict[str, Candidate]) -> None:
    candidates |= {"box1": candidate("box1", node(1)), "box2": candidate("box2", node(4))}
    chosen = BackendChoice(home).choose("box1,box2", "box1", spec(gpus=1))

    assert chosen.target.backend == "box2"
    assert "box1: the runner does not work at 'box1'" in chosen.notes[0]


@pytest.mark.parametrize(
    ("second", "error"),
    [
        (candidate("box2", node(1)), BackendError),
        (Candidate("box2", None, trouble="no route to host"), BackendUnreachable),
    ],
)
def test_where_none_can_run_it_each_reason_is_named(
    home: Home, candidates: dict[str, Candidate], second: Candidate, error: type[FabricError]
) -> None:
    candidates |= {"box1": candidate("box1", node(2)), "box2": second}
    with pytest.raises(error) as refused:
        BackendChoice(home).choose("box1,box2", "", spec(gpus=4))
    assert type(refused.value) is error
    assert "box1: has 2 GPUs; box2: " in refused.value.hint

    chosen = BackendChoice(home).choose("box1,box2", "", spec(gpus=4), must_fit=False)
    assert chosen.target.backend == "box1"
    assert "box1: has 2 GPUs" in chosen.warnings[0]


def test_an_unknown_name_among_them_is_refused(home: Home, candidates: dict[str, Candidate]) -> None:
    candidates |= {"box1": candidate("box1", node(2))}
    with pytest.raises(UnknownName, match="box9"):
        BackendChoice(home).choose("box1,box9", "", spec())


def test_a_context_goes_with_one_cluster_alone(home: Home, candidates: dict[str, Candidate]) -> None:
    with pytest.raises(UsageError, match="--namespace is of one cluster"):
        BackendChoice(home).choose("box1,box2", "", spec(), namespace="team")


def test_a_search_uses_all_that_answer_and_have_enough(home: Home, candidates: dict[str, Candidate]) -> None:
    candidates |= {
        "box1": candidate("box1", node(0, ["a", "b"])),
        "box2": Candidate("box2", None, trouble="no route to host"),
        "box3": candidate("box3", node(1)),
        "box4": candidate("box4", node(4)),
    }
    names = ("box1", "box2", "box3", "box4")

    usable, notes = BackendChoice(home).usable(names, spec(gpus=2))

    assert usable == ["box1", "box4"]
    assert notes == (
        "no trial runs on box2: it does not answer: no route to host",
        "no trial runs on box3: it has 1 GPU",
    )
    with pytest.raises(BackendUnreachable):
        BackendChoice(home).usable(names, spec(gpus=8))


def test_a_command_is_cancelled_while_backends_are_asked(home: Home) -> None:
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(Cancelled):
        BackendChoice(home, cancel).choose("local,ssh://127.0.0.1:1", "", spec())
