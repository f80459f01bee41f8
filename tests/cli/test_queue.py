"""``fabric queue``: what waits, and how people change the order while it waits."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.stubs import Gpus, pretend
from tests.support.command import Fabric, shared_fabric, until_runs
from tests.support.waiting import until
from workbench.job import short_id
from workbench.learner.queue.entries import HeldEntries, QueueEntry, read_entries
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.queries.home_queue import waiting_jobs
from workbench.store.queries.jobs import list_jobs


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    return pretend(tmp_path / "gpus", monkeypatch, ("GPU-1", "GPU-2"))


@pytest.fixture
def end(gpus: Gpus, fabric: Fabric) -> Path:
    """A job that holds both GPUs until this file is there; three others wait behind it: a, b, c."""
    return hold(fabric)


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    """The same four jobs, for tests that change nothing: nobody lets them go."""
    with pytest.MonkeyPatch.context() as patch:
        variables = pretend(tmp_path_factory.mktemp("gpus") / "gpus", patch, ("GPU-1", "GPU-2")).env()
    with shared_fabric(variables) as fabric:
        hold(fabric)
        yield fabric


def hold(fabric: Fabric) -> Path:
    end = fabric.folder / "end"
    script = fabric.folder / "hold.sh"
    script.write_text(f"while [ ! -e {end} ]; do sleep 0.2; done\n")
    run(fabric, "first", "2", "sh", "hold.sh")
    until_runs(fabric, "first")
    for name in "abc":
        run(fabric, name, "2", "true")
    until_order(fabric, "a", "b", "c")
    return end


def run(fabric: Fabric, name: str, gpus: str, *args: str) -> None:
    fabric("run", "-d", "--name", name, "--gpus", gpus, "--", *args)


def waiting(fabric: Fabric) -> list[dict[str, Any]]:
    (queue,) = fabric.json("queue", "--json")
    entries: list[dict[str, Any]] = queue["waiting"]
    return entries


def ranks(fabric: Fabric) -> list[object]:
    """Return the names of those that the host knows, in its order."""
    found = fabric.json("queue", "list", "--json")
    return [one["name"] for queue in found for one in queue["waiting"] if one["rank"]]


def at_host(fabric: Fabric, store: Store) -> Mapping[str, QueueEntry]:
    """Return what the host has of this home's jobs by their names: a look that takes no command and no agent."""
    names: dict[str, str] = {row.id: row.name for row in list_jobs(store)}
    return {
        names[one.job]: one for one in read_entries(fabric.variables["FABRIC_LEASES"]) if one.job in names
    }


def until_host_has(fabric: Fabric, holds: Callable[[Mapping[str, QueueEntry]], bool]) -> None:
    """Wait until what the host has of this home's jobs is as it should be."""
    with Store.open(fabric.jobs_home) as store:
        until(lambda: holds(at_host(fabric, store)), lambda: f"another queue than {at_host(fabric, store)}")


def until_order(fabric: Fabric, *names: str) -> None:
    """Wait until the host has these jobs, in this order, which is then what is printed."""

    def order(found: Mapping[str, QueueEntry]) -> list[str]:
        return sorted(found, key=lambda name: (-found[name].priority, found[name].position))

    until_host_has(fabric, lambda found: order(found) == [*names])
    assert ranks(fabric) == [*names]


def until_reason(fabric: Fabric, part: str) -> dict[str, Any]:
    """Wait until the one job that waits says why, and return what is printed of it; it asks for no GPUs."""
    with Store.open(fabric.jobs_home) as store:
        until(
            lambda: [part in one.row.reason.text for one in waiting_jobs(store)] == [True],
            lambda: f"it to say {part}: {waiting_jobs(store)}",
        )
    (found,) = waiting(fabric)
    assert part in found["reason"]
    return found


def started(home: Home) -> list[str]:
    with Store.open(home) as store:
        rows = [row for row in list_jobs(store) if row.started_us]
    return [row.name for row in sorted(rows, key=lambda row: row.started_us or 0)]


def test_what_is_set_is_the_hosts_at_once_and_is_kept_by_the_next_controller_and_by_a_rebuild(
    fabric: Fabric, end: Path, home: Home
) -> None:
    assert "c: priority 60, weight 2.5" in fabric("queue", "set", "c", "weight=2.5", "priority=60").stderr

    until_host_has(fabric, lambda found: found["c"].weight == 2.5)
    assert [(one["name"], one["weight"]) for one in waiting(fabric)] == [("c", 2.5), ("a", 1.0), ("b", 1.0)]
    assert "queue: priority 60, weight 2.5" in fabric("events", "c", "--kind", "request").stdout
    fabric("queue", "move", "c", "--behind-of", "a")
    until_order(fabric, "a", "c", "b")
    fabric("queue", "move", "b", "--ahead-of", "c")
    fabric("queue", "move", "a", "--behind-of", "b")
    until_order(fabric, "b", "a", "c")
    fabric("controller", "stop")
    home.database.unlink()
    fabric("doctor", "--rebuild")

    fabric("queue", FABRIC_NO_CONTROLLER="")  # which starts the next controller
    until_order(fabric, "b", "a", "c")
    assert {one["name"]: one["weight"] for one in waiting(fabric)} == {"a": 1.0, "b": 1.0, "c": 2.5}
    fabric("queue", "set", "c", "weight=1")
    until_host_has(fabric, lambda found: found["c"].weight == 1.0)
    fabric("queue", "move", "c", "--top")
    until_order(fabric, "c", "b", "a")
    end.touch()
    fabric("wait", "a", "b", "c")
    assert started(home) == ["first", "c", "b", "a"]


def test_of_other_people_only_the_gpus_are_shown(held: Fabric) -> None:
    other = HeldEntries()
    facts = {"gpus": 1, "each": 1, "priority": 60, "position": 1.0, "since_us": 1}
    assert other.hold(held.variables["FABRIC_LEASES"], "theirs", "training-secretjob", facts)

    with contextlib.closing(other):
        found = waiting(held)
        table = held("queue").stdout

    assert found[0] | {"person": ""} == {
        **dict.fromkeys(("id", "name", "priority", "weight", "since", "reason")),
        **{"person": "", "gpus": 1, "rank": 1, "of": 4},
    }
    assert [(one["rank"], one["of"]) for one in found[1:]] == [(2, 4), (3, 4), (4, 4)]
    assert "1 of 4" in table and "secretjob" not in table


def test_names_are_in_no_file_that_others_read_unless_they_are_shared(
    gpus: Gpus, fabric: Fabric, tmp_path: Path
) -> None:
    leases = Path(fabric.variables["FABRIC_LEASES"])
    hold = ("sh", "-c", "while :; do sleep 0.2; done")
    run(fabric, "canary-runs", "1", *hold)
    until_runs(fabric, "canary-runs")
    fabric("config", "set", "backends.local.share_names", "true")
    run(fabric, "shared-runs", "1", *hold)
    until_runs(fabric, "shared-runs")
    until(
        lambda: read_entries(str(leases)) == [],
        "those that run to wait no more, whichever connection had them",
    )
    run(fabric, "shared-waits", "2", "true")
    fabric("config", "unset", "backends.local.share_names")
    run(fabric, "canary-waits", "2", "true")
    another = str(tmp_path / "another home")

    def names() -> list[str | None]:
        (queue,) = fabric.json("queue", "--backend", "local", "--json", FABRIC_HOME=another)
        return [one["name"] for one in queue["waiting"]]

    # Two connections: while one hands a job over to its waiter the other one may still have its entry.
    until(lambda: ranks(fabric) == ["shared-waits", "canary-waits"])
    until(lambda: names() == ["shared-waits", None])
    (inventory,) = fabric.json("gpus", "--json", FABRIC_HOME=another)

    # An entry is renewed as another file, which has a dot before its name for an instant.
    files = (path for path in leases.iterdir() if not path.name.startswith("."))
    written = b"".join(path.read_bytes() for path in files)
    assert b"canary" not in written and b"shared-waits" in written
    assert [slot["holder_name"] for slot in inventory["nodes"][0]["slots"]] == ["", "shared-runs"]
    assert "'s shared-waits" in fabric("queue", "--backend", "local", FABRIC_HOME=another).stdout
    assert "shared-runs" in fabric("gpus", FABRIC_HOME=another).stdout


def test_a_setting_that_shares_names_is_true_or_false(fabric: Fabric) -> None:
    fabric("config", "set", "backends.local.share_names", "some")

    refused = fabric("run", "--", "true", expect=78)

    assert "share_names of local must be true or false" in refused.stderr


def test_gpus_says_since_when_each_is_held(held: Fabric) -> None:
    (inventory,) = held.json("gpus", "--json")
    slots = inventory["nodes"][0]["slots"]
    begun = held.json("show", "first", "--json")["submitted"]
    assert begun
    assert all(slot["held_since_us"] > 1_600_000_000_000_000 for slot in slots)
    assert "SINCE" in held("gpus").stdout


@pytest.mark.parametrize("value", ["101", "-1", "high", "1.5", ""])
def test_a_priority_out_of_range_is_refused_with_the_range(fabric: Fabric, value: str) -> None:
    refused = fabric("queue", "set", "a", f"priority={value}", expect=65)

    assert "from 0 to 100" in refused.stderr


@pytest.mark.parametrize("value", ["0", "0.001", "-1", "1001", "1e300", "nan", "inf", "high", ""])
def test_a_weight_out_of_range_is_refused_with_the_range(fabric: Fabric, value: str) -> None:
    refused = fabric("queue", "set", "a", f"weight={value}", expect=65)

    assert "is not a number from 0.01 to 1000" in refused.stderr


def test_the_time_of_a_job_that_waits_is_changed_and_stays_over_a_rebuild(fabric: Fabric, home: Home) -> None:
    fabric("run", "-d", "--name", "other", "--begin", "2030-12-24T22:00", "--", "true")
    assert (
        "other: begins 2031-01-01 08:00" in fabric("queue", "set", "other", "begin=2031-01-01T08:00").stderr
    )
    until_reason(fabric, "waits until 2031-01-01 08:00")
    assert "queue: begins 2031-01-01 08:00" in fabric("events", "other", "--kind", "request").stdout

    fabric("queue", "set", "other", "priority=60")
    fabric("controller", "stop")
    home.database.unlink()
    fabric("doctor", "--rebuild")

    fabric("queue", FABRIC_NO_CONTROLLER="")  # which starts the next controller
    assert until_reason(fabric, "waits until 2031-01-01 08:00")["priority"] == 60
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


def test_jobs_of_several_backends_have_queues_of_their_own(held: Fabric) -> None:
    refused = held("queue", "move", "a", "--ahead-of", "a", expect=64)

    assert "cannot go ahead of itself" in refused.stderr
    name = short_id(str(waiting(held)[0]["id"]))
    assert name in held("queue").stdout


def test_a_job_waits_for_its_time_over_a_restart_of_the_controller(fabric: Fabric, home: Home) -> None:
    fabric("run", "-d", "--name", "late", "--begin", "2030-12-24T22:00", "--", "true")
    until_reason(fabric, "waits until 2030-12-24 22:00")
    fabric("run", "-d", "--name", "soon", "--begin", "+6s", "--", "true")

    fabric("controller", "stop")
    fabric("wait", "soon")

    document = fabric.json("show", "soon", "--json")
    begin = datetime.fromisoformat(document["spec"]["begin"])
    assert datetime.fromisoformat(document["started"]) >= begin
    fabric("halt", "late")
    assert fabric.json("show", "late", "--json")["state"] == "HALTED"
    fabric("resume", "late")
    until_reason(fabric, "waits until 2030-12-24 22:00")


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

    until_reason(fabric, "; enough is free by about ")
    fabric("kill", "long", "next")


def test_a_larger_priority_goes_first_also_of_all_with_a_label_and_those_that_run_are_left(
    fabric: Fabric, end: Path, home: Home
) -> None:
    for name in ("d", "e"):
        fabric("run", "-d", "--name", name, "--gpus", "2", "--label", "team=vision", "--", "true")
    until_order(fabric, "a", "b", "c", "d", "e")

    printed = fabric("queue", "set", "--label", "team=vision", "priority=70").stderr

    assert [line.split()[1] for line in printed.splitlines()] == ["d:", "e:"]
    until_order(fabric, "d", "e", "a", "b", "c")
    assert (
        "no job that waits matches" in fabric("queue", "set", "--where", "name:first", "priority=70").stderr
    )
    refused = fabric("queue", "set", "first", "--label", "team=vision", "priority=20", expect=64).stderr
    assert "does not wait for its turn" in refused
    assert ranks(fabric) == ["d", "e", "a", "b", "c"]

    # A larger priority goes first as soon as it is set.
    fabric("queue", "set", "c", "priority=80")
    until_order(fabric, "c", "d", "e", "a", "b")
    assert [one["priority"] for one in waiting(fabric)] == [80, 70, 70, 50, 50]
    history = fabric("events", "c", "--kind", "request").stdout
    assert "queue: priority 80" in history
    end.touch()
    until(lambda: started(home) == ["first", "c", "d", "e", "a", "b"], lambda: str(started(home)))


def test_a_search_has_and_is_given_a_weight_and_a_priority_also_as_an_experiment_of_determined(
    fabric: Fabric, end: Path
) -> None:
    def until_turns(priority: int, weight: float) -> None:
        def are_these(found: Mapping[str, QueueEntry]) -> bool:
            mine = [one for name, one in found.items() if name.startswith("lr-")]
            return {(one.priority, one.weight) for one in mine} == {(priority, weight)}

        until_host_has(fabric, are_these)
        mine = [one for one in waiting(fabric) if one["name"].startswith("lr-")]
        assert {(one["priority"], one["weight"]) for one in mine} == {(priority, weight)}

    (fabric.folder / "search.yaml").write_text(
        "name: lr\nentrypoint: 'true'\nresources: {slots_per_trial: 2, weight: 3, priority: 60}\n"
        "hyperparameters: {x: {type: categorical, vals: [1, 2]}}\nsearcher: {name: grid, metric: loss}\n"
    )
    fabric("experiment", "create", "search.yaml")
    until_turns(40, 3.0)

    assert "lr: weight 2" in fabric("e", "set", "weight", "lr", "2").stderr
    printed = fabric("e", "set", "priority", "lr", "30").stderr

    assert "Determined's priority 30 is 70 here" in printed and "lr: priority 70" in printed
    until_turns(70, 2.0)

    # A search of ours is given them by its name, too.
    (fabric.folder / "search.yml").write_text(
        "name: rate\ngpus: 2\nframework:\n  command: echo loss=1\n"
        "search: {method: grid, metric: loss, params: {x: {choice: [1, 2]}}}\n"
    )
    fabric("run", "-d", "search.yml")
    until_host_has(fabric, lambda found: "rate-1" in found)

    printed = fabric("queue", "set", "rate", "weight=2", "priority=80").stderr

    assert "rate: priority 80, weight 2" in printed
    until_host_has(fabric, lambda found: found["rate-1"].priority == 80)
    assert str(ranks(fabric)[0]).startswith("rate-")
    end.touch()
