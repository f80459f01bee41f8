"""``fabric queue``: what waits, and how people change the order while it waits."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from tests.stubs import Gpus, pretend
from tests.support.command import Fabric, until_runs
from tests.support.waiting import until
from workbench.job import short_id
from workbench.learner.queue.entries import HeldEntries, read_entries
from workbench.paths import Home, leases_folder
from workbench.store.db.database import Store
from workbench.store.queries.jobs import list_jobs


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    return pretend(tmp_path / "gpus", monkeypatch, ("GPU-1", "GPU-2"))


@pytest.fixture
def end(gpus: Gpus, fabric: Fabric, tmp_path: Path) -> Path:
    """A job that holds both GPUs until this file is there; three others wait behind it: a, b, c."""
    end = tmp_path / "end"
    script = fabric.folder / "hold.sh"
    script.write_text(f"while [ ! -e {end} ]; do sleep 0.05; done\n")
    run(fabric, "first", "2", "sh", "hold.sh")
    until_runs(fabric, "first")
    for name in "abc":
        run(fabric, name, "2", "true")
    until(lambda: ranks(fabric) == ["a", "b", "c"], "all to wait at the host")
    return end


def run(fabric: Fabric, name: str, gpus: str, *args: str) -> None:
    fabric("run", "-d", "--name", name, "--gpus", gpus, "--", *args)


def waiting(fabric: Fabric) -> list[dict[str, object]]:
    (queue,) = fabric.json("queue", "--json")
    entries: list[dict[str, object]] = queue["waiting"]
    return entries


def ranks(fabric: Fabric) -> list[object]:
    """Return the names of those that the host knows, in its order."""
    found = fabric.json("queue", "list", "--json")
    return [one["name"] for queue in found for one in queue["waiting"] if one["rank"]]


def started(home: Home) -> list[str]:
    with Store.open(home) as store:
        rows = [row for row in list_jobs(store) if row.started_us]
    return [row.name for row in sorted(rows, key=lambda row: row.started_us or 0)]


def test_a_larger_priority_goes_first_as_soon_as_it_is_set(fabric: Fabric, end: Path, home: Home) -> None:
    fabric("queue", "set", "c", "priority=70")

    until(lambda: ranks(fabric) == ["c", "a", "b"], "the host to have the new order")
    assert [one["priority"] for one in waiting(fabric)] == [70, 50, 50]
    history = fabric("events", "c", "--kind", "request").stdout
    assert "queue: priority 70" in history
    end.touch()
    fabric("wait", "a", "b", "c")
    assert started(home) == ["first", "c", "a", "b"]


def test_a_position_is_kept_by_the_next_controller_and_by_a_rebuild(
    fabric: Fabric, end: Path, home: Home
) -> None:
    fabric("queue", "move", "c", "--ahead-of", "b")
    fabric("queue", "move", "a", "--behind-of", "b")
    until(lambda: ranks(fabric) == ["c", "b", "a"], "the host to have the new order")
    fabric("controller", "stop")
    home.database.unlink()
    fabric("doctor", "--rebuild")

    until(lambda: ranks(fabric) == ["c", "b", "a"], "the next controller to have the same order")
    fabric("queue", "move", "a", "--top")
    until(lambda: ranks(fabric) == ["a", "c", "b"], "the last one to be first")
    end.touch()
    fabric("wait", "a", "b", "c")
    assert started(home) == ["first", "a", "c", "b"]


def test_of_other_people_only_the_gpus_are_shown(fabric: Fabric, end: Path) -> None:
    other = HeldEntries()
    facts = {"gpus": 1, "each": 1, "priority": 60, "position": 1.0, "since_us": 1}
    assert other.hold(str(leases_folder()), "theirs", "training-secretjob", facts)

    until(lambda: waiting(fabric)[0]["id"] is None, "the other one to be seen")
    found = waiting(fabric)
    assert found[0] | {"person": ""} == {
        **dict.fromkeys(("id", "name", "priority", "weight", "since", "reason")),
        **{"person": "", "gpus": 1, "rank": 1, "of": 4},
    }
    assert [(one["rank"], one["of"]) for one in found[1:]] == [(2, 4), (3, 4), (4, 4)]
    table = fabric("queue").stdout
    assert "1 of 4" in table and "secretjob" not in table
    other.close()


def test_gpus_says_since_when_each_is_held(fabric: Fabric, end: Path) -> None:
    (inventory,) = fabric.json("gpus", "--json")
    slots = inventory["nodes"][0]["slots"]
    begun = fabric.json("show", "first", "--json")["submitted"]
    assert begun
    assert all(slot["held_since_us"] > 1_600_000_000_000_000 for slot in slots)
    assert "SINCE" in fabric("gpus").stdout


@pytest.mark.parametrize("value", ["101", "-1", "high", "1.5", ""])
def test_a_priority_out_of_range_is_refused_with_the_range(fabric: Fabric, value: str) -> None:
    refused = fabric("queue", "set", "a", f"priority={value}", expect=65)

    assert "from 0 to 100" in refused.stderr


def test_a_weight_is_the_hosts_at_once_and_is_kept_over_a_rebuild(
    fabric: Fabric, end: Path, home: Home
) -> None:
    def at_host() -> dict[str, float]:
        return {one.job: one.weight for one in read_entries(str(leases_folder()))}

    job = str(next(one["id"] for one in waiting(fabric) if one["name"] == "c"))
    assert "c: priority 60, weight 2.5" in fabric("queue", "set", "c", "weight=2.5", "priority=60").stderr

    until(lambda: at_host()[job] == 2.5, "the host to have the weight")
    assert [(one["name"], one["weight"]) for one in waiting(fabric)] == [("c", 2.5), ("a", 1.0), ("b", 1.0)]
    assert "queue: priority 60, weight 2.5" in fabric("events", "c", "--kind", "request").stdout
    fabric("queue", "move", "c", "--behind-of", "a")
    fabric("controller", "stop")
    home.database.unlink()
    fabric("doctor", "--rebuild")

    until(lambda: {one["name"]: one["weight"] for one in waiting(fabric)} == {"a": 1.0, "b": 1.0, "c": 2.5})
    fabric("queue", "set", "c", "weight=1")
    until(lambda: at_host()[job] == 1.0, "the host to have the next weight")


@pytest.mark.parametrize("value", ["0", "0.001", "-1", "1001", "1e300", "nan", "inf", "high", ""])
def test_a_weight_out_of_range_is_refused_with_the_range(fabric: Fabric, value: str) -> None:
    refused = fabric("queue", "set", "a", f"weight={value}", expect=65)

    assert "is not a number from 0.01 to 1000" in refused.stderr


def test_the_time_of_a_job_that_waits_is_changed_and_stays_over_a_rebuild(fabric: Fabric, home: Home) -> None:
    def reasons() -> list[object]:
        return [one["reason"] for one in waiting(fabric)]

    fabric("run", "-d", "--name", "other", "--begin", "2030-12-24T22:00", "--", "true")
    assert (
        "other: begins 2031-01-01 08:00" in fabric("queue", "set", "other", "begin=2031-01-01T08:00").stderr
    )
    until(lambda: reasons() == ["waits until 2031-01-01 08:00"], "the new time")
    assert "queue: begins 2031-01-01 08:00" in fabric("events", "other", "--kind", "request").stdout

    fabric("queue", "set", "other", "priority=60")
    fabric("controller", "stop")
    home.database.unlink()
    fabric("doctor", "--rebuild")

    until(lambda: reasons() == ["waits until 2031-01-01 08:00"], "the same time after the rebuild")
    assert [one["priority"] for one in waiting(fabric)] == [60]
    fabric("queue", "set", "other", "begin=now")
    fabric("wait", "other")
    assert fabric.json("show", "other", "--json")["state"] == "COMPLETED"
    assert "does not wait" in fabric("queue", "set", "other", "begin=now", expect=64).stderr


@pytest.mark.parametrize(
    ("value", "code", "says"),
    [
        ("noonish", 65, "22:00"),
        ("", 65, "22:00"),
        ("2020-01-01T08:00", 64, "is over"),
        ("+200000h", 64, "ten years"),
    ],
)
def test_a_time_that_cannot_be_set_is_refused_with_what_is_accepted(
    fabric: Fabric, value: str, code: int, says: str
) -> None:
    assert says in fabric("queue", "set", "a", f"begin={value}", expect=code).stderr


def test_a_job_that_does_not_wait_is_named_with_its_state(fabric: Fabric) -> None:
    fabric("run", "--name", "done", "--", "true")

    for args in (("set", "done", "priority=70"), ("set", "done", "weight=2"), ("move", "done", "--top")):
        refused = fabric("queue", *args, expect=64)
        assert "does not wait for its turn: it is COMPLETED" in refused.stderr
    assert "no job waits" in fabric("queue").stderr


def test_words_that_make_no_sense_are_refused(fabric: Fabric) -> None:
    fabric("run", "--name", "done", "--", "true")

    assert "what is to be set?" in fabric("queue", "set", "done", expect=64).stderr
    assert "no gpus to set" in fabric("queue", "set", "done", "gpus=2", expect=64).stderr
    assert "which job?" in fabric("queue", "set", "priority=2", expect=64).stderr
    assert "where to?" in fabric("queue", "move", "done", expect=64).stderr
    assert "where to?" in fabric("queue", "move", "done", "--top", "--ahead-of", "x", expect=64).stderr


def test_jobs_of_several_backends_have_queues_of_their_own(fabric: Fabric, end: Path) -> None:
    refused = fabric("queue", "move", "a", "--ahead-of", "a", expect=64)

    assert "cannot go ahead of itself" in refused.stderr
    name = short_id(str(waiting(fabric)[0]["id"]))
    assert name in fabric("queue").stdout


def test_a_job_waits_for_its_time_over_a_restart_of_the_controller(fabric: Fabric, home: Home) -> None:
    fabric("run", "-d", "--name", "late", "--begin", "2030-12-24T22:00", "--", "true")
    until(
        lambda: [one["reason"] for one in waiting(fabric)] == ["waits until 2030-12-24 22:00"], "its reason"
    )
    fabric("run", "-d", "--name", "soon", "--begin", "+6s", "--", "true")

    fabric("controller", "stop")
    fabric("wait", "soon")

    document = fabric.json("show", "soon", "--json")
    begin = datetime.fromisoformat(document["spec"]["begin"])
    assert datetime.fromisoformat(document["started"]) >= begin
    fabric("halt", "late")
    assert fabric.json("show", "late", "--json")["state"] == "HALTED"
    fabric("resume", "late")
    until(
        lambda: [one["reason"] for one in waiting(fabric)] == ["waits until 2030-12-24 22:00"],
        "it to wait for the same time",
    )


def test_a_time_that_is_none_or_over_is_refused_with_what_is_accepted(fabric: Fabric) -> None:
    over = fabric("run", "-d", "--begin", "2020-01-01T08:00", "--", "true", expect=64).stderr
    assert "'2020-01-01T08:00' is over" in over
    (fabric.folder / "m.yml").write_text("name: a\nbegin: noonish\nframework: {command: 'true'}\n")
    wrong = fabric("run", "-d", "m.yml", expect=65).stderr
    assert "m.yml:2" in wrong and "22:00, 2026-12-24T08:00 or +2h" in wrong
    assert fabric("run", "m.yml", "--begin", "now").stdout == ""


def test_a_reason_names_when_enough_is_free_by_the_holders_max_runtime(fabric: Fabric) -> None:
    documents = "name: %s\nafter: []\ncpus: 1000\nmax_runtime: 1h\nframework: {command: '%s'}\n"
    (fabric.folder / "two.yml").write_text(
        documents % ("long", "sleep 600") + "---\n" + documents % ("next", "true")
    )
    fabric("run", "-d", "two.yml")  # the second one waits before it is known when the first one is over

    until(lambda: "; enough is free by about " in str(waiting(fabric)[0]["reason"]), "the time in the reason")
    fabric("kill", "long", "next")


def test_all_that_wait_with_a_label_are_changed_and_those_that_run_are_left(
    fabric: Fabric, end: Path, home: Home
) -> None:
    for name in ("d", "e"):
        fabric("run", "-d", "--name", name, "--gpus", "2", "--label", "team=vision", "--", "true")
    until(lambda: ranks(fabric) == ["a", "b", "c", "d", "e"], lambda: str(ranks(fabric)))

    printed = fabric("queue", "set", "--label", "team=vision", "priority=70").stderr

    assert [line.split()[1] for line in printed.splitlines()] == ["d:", "e:"]
    until(lambda: ranks(fabric) == ["d", "e", "a", "b", "c"], lambda: str(ranks(fabric)))
    assert (
        "no job that waits matches" in fabric("queue", "set", "--where", "name:first", "priority=70").stderr
    )
    refused = fabric("queue", "set", "first", "--label", "team=vision", "priority=20", expect=64).stderr
    assert "does not wait for its turn" in refused
    assert ranks(fabric) == ["d", "e", "a", "b", "c"]
    end.touch()
    until(lambda: started(home) == ["first", "d", "e", "a", "b", "c"], lambda: str(started(home)))


def test_an_experiment_of_determined_has_and_is_given_a_weight_and_a_priority(
    fabric: Fabric, end: Path
) -> None:
    def turns() -> set[tuple[object, object]]:
        return {
            (one["priority"], one["weight"]) for one in waiting(fabric) if str(one["name"]).startswith("lr-")
        }

    (fabric.folder / "search.yaml").write_text(
        "name: lr\nentrypoint: 'true'\nresources: {slots_per_trial: 2, weight: 3, priority: 60}\n"
        "hyperparameters: {x: {type: categorical, vals: [1, 2]}}\nsearcher: {name: grid, metric: loss}\n"
    )
    fabric("experiment", "create", "search.yaml")
    until(lambda: turns() == {(40, 3.0)}, lambda: str(waiting(fabric)))

    assert "lr: weight 2" in fabric("e", "set", "weight", "lr", "2").stderr
    printed = fabric("e", "set", "priority", "lr", "30").stderr

    assert "Determined's priority 30 is 70 here" in printed and "lr: priority 70" in printed
    until(lambda: turns() == {(70, 2.0)}, lambda: str(waiting(fabric)))
    end.touch()


def test_a_search_is_given_a_weight_by_its_name(fabric: Fabric, end: Path) -> None:
    (fabric.folder / "search.yml").write_text(
        "name: lr\ngpus: 2\nframework:\n  command: echo loss=1\n"
        "search: {method: grid, metric: loss, params: {x: {choice: [1, 2]}}}\n"
    )
    fabric("run", "-d", "search.yml")
    until(lambda: "lr-1" in ranks(fabric), lambda: str(ranks(fabric)))

    printed = fabric("queue", "set", "lr", "weight=2", "priority=80").stderr

    assert "lr: priority 80, weight 2" in printed
    until(lambda: "lr" in str(ranks(fabric)[0]), lambda: str(ranks(fabric)))
    end.touch()
