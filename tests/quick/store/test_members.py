"""Jobs of arrays, searches and sweeps by their numbers: ``NAME[17]``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.stored_jobs import add_job, make_detail
from workbench.errors import AmbiguousName, UnknownName, UsageError
from workbench.job import short_id
from workbench.paths import Home
from workbench.spec import JobSpec, spec_to_json
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.queries.members import NotMade, UnmadeJob
from workbench.store.queries.resolve import each_name, resolve
from workbench.store.updates.deletion import mark_deleted
from workbench.store.updates.experiments import insert_experiment, record_event
from workbench.store.updates.jobs import insert_job

ARRAY = "experiment-abcdefghj"
OF = 1500


@pytest.fixture
def store(home: Home) -> Iterator[Store]:
    with Store.open(home) as opened:
        yield opened


def begin(store: Store, experiment_id: str = ARRAY, name: str = "many", **search: Any) -> None:
    """Write down an array of 1,500 jobs, or another search, that has not made any."""
    keys = {"method": "grid", "max_concurrent": 100, "params": {"i": {"choice": [*range(OF, 0, -1)]}}}
    spec = spec_to_json(JobSpec(f"{name}-${{params.i}}", search={**keys, **search}))
    insert_experiment(store, experiment_id, {"spec": spec, "seed": 1})
    store.execute("UPDATE experiments SET name = ? WHERE id = ?", (name, experiment_id))


def make(store: Store, *numbers: int, experiment_id: str = ARRAY) -> list[JobRow]:
    """Make jobs of the array, as the controller does."""
    rows = []
    for number in numbers:
        detail = make_detail(f"many-{number}", parent=experiment_id, trial=number)
        create = {"do": "create", "trial": f"t{number}", "number": number, "job": detail.row.id}
        create |= {"hparams": {"i": number}, "seed": number}
        record_event(store, experiment_id, {"do": "begin", "operations": [create]})
        rows.append(insert_job(store, detail))
    return rows


def unmade(store: Store, text: str) -> tuple[UnmadeJob, NotMade]:
    with pytest.raises(NotMade) as caught:
        resolve(store, text)
    return caught.value.unmade, caught.value


def test_a_number_behind_an_id_a_beginning_or_a_name_stands_for_a_job_of_an_array(store: Store) -> None:
    begin(store)
    rows = make(store, 1, 2, 3)

    for text in ("many[2]", f"{ARRAY}[2]", "abcdefghj[2]", "abc[2]", "@last[2]", " many[02] "):
        assert resolve(store, text, one=True).id == rows[1].id, text
    for text in ("abcdefghj_2", f"{ARRAY}_2"):
        assert resolve(store, text, one=True).id == rows[1].id, text


def test_slurms_way_counts_behind_a_whole_id_only(store: Store) -> None:
    begin(store)
    make(store, 1)

    for text in ("many_1", "abc_1", "abcdefghk_1"):
        with pytest.raises(UnknownName, match=f"no job '{text}'"):
            resolve(store, text)


def test_a_job_that_is_called_so_goes_first(store: Store) -> None:
    begin(store)
    make(store, 1, 2)
    single, several, old = (add_job(store, each) for each in ("many[1]", "many[1..2]", "abcdefghj_1"))

    assert resolve(store, "many[1]").id == single.id
    assert resolve(store, "abcdefghj_1").id == old.id
    assert [resolve(store, each).id for each in each_name(store, ["many[1..2]"])] == [several.id]


def test_of_a_job_that_is_not_made_its_name_values_and_array_are_known(store: Store) -> None:
    begin(store)
    make(store, 1, 2, 3)

    job, error = unmade(store, "many[1400]")

    assert (job.id, job.number, job.count, job.name) == ("abcdefghj[1400]", 1400, OF, "many-1400-1400")
    assert (job.hparams, job.made, job.running, job.at_most) == ({"i": 1400}, 3, 0, 100)
    assert (job.will_be_made, job.kind) == (True, "array")
    assert error.exit_code == 75
    assert error.message == (
        "job 1,400 of 1,500 of many (abcdefghj) is not made yet: 3 of 1,500 are made, 0 run, at most 100 at once"
    )
    assert "fabric experiment kill abcdefghj" in error.hint


def test_a_trial_that_waits_to_get_its_job_has_the_values_that_it_was_created_with(store: Store) -> None:
    begin(store)
    create = {"do": "create", "trial": "t", "number": 1, "job": "training-bbbbbbbbb", "hparams": {"i": -5}}
    record_event(store, ARRAY, {"do": "begin", "operations": [{**create, "seed": 1}]})

    assert unmade(store, "many[1]")[0].hparams == {"i": -5}


@pytest.mark.parametrize(
    ("state", "why", "code", "hint"),
    [
        ("PAUSED", "is not made yet: the array is paused", 75, "experiment resume abcdefghj"),
        ("STOPPING", "was never made: the array is being ended", 64, ""),
        ("KILLED", "was never made: the array is KILLED: by ada", 64, "experiment continue abcdefghj"),
        ("COMPLETED", "was never made: the array is COMPLETED: by ada", 64, ""),
    ],
)
def test_an_array_that_does_not_go_on_says_so_of_its_jobs(
    store: Store, state: str, why: str, code: int, hint: str
) -> None:
    begin(store)
    record_event(store, ARRAY, {"do": "any", "state": state, "reason": "by ada"})

    _, error = unmade(store, "many[2]")

    assert error.message == f"job 2 of 1,500 of many (abcdefghj) {why}"
    assert error.exit_code == code
    assert hint in error.hint and bool(hint) == bool(error.hint)


def test_a_number_that_no_job_has_is_refused_with_those_there_are(store: Store) -> None:
    begin(store)

    for number in (0, 1501):
        with pytest.raises(UnknownName, match=f"has no job {number:,}") as caught:
            resolve(store, f"many[{number}]")
        assert caught.value.hint == "its jobs are abcdefghj[1] to abcdefghj[1500]"
        assert caught.value.exit_code == 64


def test_a_job_of_an_array_that_is_deleted_is_not_one_to_come(store: Store) -> None:
    begin(store)
    (row,) = make(store, 1)
    mark_deleted(store, row.id, who="ada@box", origin="cli")

    with pytest.raises(UnknownName, match=r"job 1 of many \(abcdefghj\) was deleted"):
        resolve(store, "many[1]")


def test_trials_of_a_random_search_to_come_have_the_values_that_will_be_drawn(store: Store) -> None:
    from workbench.search.config import SearchConfig

    search: dict[str, Any] = {
        "method": "random",
        "max_trials": 3,
        "metric": "loss",
        "params": {"i": {"uniform": [0, 1]}},
    }
    begin(store, **search)

    job, _ = unmade(store, "many[2]")

    assert (job.kind, job.count) == ("search", 3)
    assert job.hparams == SearchConfig.from_json(search).first_trials(3, 1)[1].hparams


def test_what_a_search_chooses_by_results_is_not_known_before(store: Store) -> None:
    begin(store, method="asha", metric="loss", time_metric="epoch", max_time=9, max_trials=4)

    job, _ = unmade(store, "many[4]")

    assert (job.hparams, job.name) == (None, None)


def test_several_numbers_stand_for_several_jobs(store: Store) -> None:
    begin(store)
    rows = make(store, 1, 2, 3, 4)

    found = [resolve(store, each).id for each in each_name(store, ["many[1..2,4]", "abc[3-3]", "many-1"])]
    slurm = [resolve(store, each).id for each in each_name(store, ["abcdefghj_[1,3-4]", "abcdefghj_2"])]

    assert found == [rows[0].id, rows[1].id, rows[3].id, rows[2].id, rows[0].id]
    assert slurm == [rows[0].id, rows[2].id, rows[3].id, rows[1].id]
    with pytest.raises(UsageError, match="stands for several jobs, and one is asked for"):
        resolve(store, "many[1..2]")
    with pytest.raises(UsageError, match="3-1 has no numbers"):
        list(each_name(store, ["many[3-1]"]))
    with pytest.raises(UsageError, match="more than 1,000 jobs"):
        list(each_name(store, ["many[5,1..1000]"]))


def test_a_number_stands_for_a_job_of_a_sweep_by_its_names_and_by_its_label(store: Store) -> None:
    rows = [add_job(store, f"digits-{number:02}", labels={"sweep": "lr"}) for number in range(1, 13)]
    add_job(store, "plain-1")

    for text in ("digits[3]", "lr[3]"):
        assert resolve(store, text).id == rows[2].id
    assert resolve(store, "lr[12]").id == rows[11].id
    with pytest.raises(UnknownName, match="no job of the sweep lr has the number 13"):
        resolve(store, "lr[13]")
    with pytest.raises(UnknownName, match="no job 'plain'"):
        resolve(store, "plain[1]")


def test_two_jobs_of_a_sweep_with_one_number_are_the_newest_or_refused(store: Store) -> None:
    rows = [add_job(store, "digits-1", labels={"sweep": "lr"}) for _ in range(2)]
    notes: list[str] = []
    store.note_by(notes.append)

    assert resolve(store, "lr[1]").id == rows[1].id
    assert notes == [f"2 jobs fit lr[1]; this is the newest, {short_id(rows[1].id)}"]
    with pytest.raises(AmbiguousName, match="fits 2 jobs"):
        resolve(store, "lr[1]", one=True)


def test_numbers_never_mix_the_jobs_of_two_sweeps(store: Store) -> None:
    old = [add_job(store, f"digits-{number}", labels={"sweep": "old"}) for number in range(1, 6)]
    new = [add_job(store, f"digits-{number}", labels={"sweep": "new"}) for number in range(1, 4)]
    add_job(store, "digits-more-9", labels={"sweep": "more"})
    notes: list[str] = []
    store.note_by(notes.append)

    assert resolve(store, "digits[3]").id == new[2].id
    assert notes == [
        "2 sweeps have jobs that are called digits-N; this is the newest, with the label sweep=new"
    ]
    with pytest.raises(UnknownName, match="no job of the sweep digits has the number 4"):
        [resolve(store, each) for each in each_name(store, ["digits[1..5]"])]
    with pytest.raises(AmbiguousName, match="2 sweeps have jobs that are called digits-N") as caught:
        resolve(store, "digits[5]", one=True)
    assert caught.value.hint == "their labels tell them apart: new[5], old[5]"
    assert resolve(store, "old[5]", one=True).id == old[4].id


def test_jobs_of_a_sweep_that_are_called_otherwise_have_no_numbers(store: Store) -> None:
    for name in ("run-1e-3", "other-3"):
        add_job(store, name, labels={"sweep": "lr"})

    with pytest.raises(UnknownName, match="the jobs of the sweep lr have no numbers of one kind"):
        resolve(store, "lr[3]")


def test_a_number_that_fits_a_search_and_a_sweep_of_one_name_is_refused_where_one_is_meant(
    store: Store,
) -> None:
    begin(store)
    rows = make(store, 1, 2)
    add_job(store, "many-1", labels={"sweep": "lr"})

    assert resolve(store, "many[1]").id == rows[0].id
    with pytest.raises(AmbiguousName, match=r"'many\[1\]' fits a job of abcdefghj and") as caught:
        resolve(store, "many[1]", one=True)
    assert caught.value.hint == "write abcdefghj[1], or many-1"
    assert resolve(store, "many[2]", one=True).id == rows[1].id
    assert resolve(store, "abcdefghj[1]", one=True).id == rows[0].id


def test_a_number_behind_a_single_job_or_nothing_is_refused(store: Store) -> None:
    row = add_job(store, "solo")

    with pytest.raises(UnknownName, match=rf"solo is a job \({short_id(row.id)}\), and has no others"):
        resolve(store, "solo[2]")
    with pytest.raises(UnknownName, match="no job 'solos'"):
        resolve(store, "solos[2]")
    with pytest.raises(UnknownName, match="no array and no search yet"):
        resolve(store, "@last[2]")
