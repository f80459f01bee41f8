"""A prepared job is written into the store, and the controller woken; or nothing is left of it."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.services.stored import BOTH, copied, now
from tests.support.disks import fill, small_disk
from workbench import paths
from workbench.controller.runtime.secrets import read_secrets, secrets_file
from workbench.errors import CannotWrite, HomeNotBound, InputMissing, UsageError
from workbench.job import State, new_job_id
from workbench.manifest import load_text
from workbench.paths import Home
from workbench.services.submit.options import RunOptions
from workbench.services.submit.prepare import JobSubmission, data_limit, prepare
from workbench.services.submit.submit import ControllerStart, submission_lines, submit
from workbench.store.db.database import Store
from workbench.store.queries.jobs import detail, list_jobs

SEARCH = """\
name: tuned
framework: {command: "true"}
search: {metric: loss, method: random, max_trials: 2, params: {lr: 1}}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with code."""
    (tmp_path / "train.py").write_text("print('trained')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prepared(home: Home, name: str = "digits", **options: object) -> JobSubmission:
    return prepare(RunOptions(command=("python3", "train.py"), runner="process", name=name, **options), home)  # type: ignore[arg-type]


def test_a_submitted_job_waits_with_all_that_was_prepared(store: Store, woken: list[Home]) -> None:
    made = prepared(store.home, labels=("team=größe",), overrides=("params.lr=0.1",))

    row = submit(store, made, origin="python")

    found = detail(store, row.id)
    assert (row.name, row.state, row.attempt, row.labels) == ("digits", State.QUEUED, 1, {"team": "größe"})
    assert row == now(store, row) == list_jobs(store)[0]
    assert (found.spec, found.manifest_text, found.origins) == (
        made.loaded.spec, made.loaded.text, made.loaded.origins,
    )  # fmt: skip
    assert made.code is not None
    assert found.code_hash == made.code.code_hash
    assert found.recorded == made.recorded
    assert json.loads(store.home.job(row.id).events.read_text().splitlines()[0])["origin"] == "python"
    assert woken == [store.home]


def test_a_job_may_have_an_id_beforehand_and_belong_to_another(store: Store, woken: list[Home]) -> None:
    job_id = new_job_id()

    row = submit(store, replace(prepared(store.home), job_id=job_id), origin="cli", parent="experiment-x")

    assert (row.id, row.parent) == (job_id, "experiment-x")


def test_jobs_may_have_one_name(store: Store, woken: list[Home]) -> None:
    made = prepared(store.home, "same")

    first, second = submit(store, made, origin="cli"), submit(store, made, origin="cli")

    assert first.id != second.id
    assert [row.id for row in list_jobs(store)] == [second.id, first.id]


def test_secrets_go_to_a_file_of_the_users_own_and_into_no_record(
    store: Store, woken: list[Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "very-hidden")

    row = submit(store, prepared(store.home, environment=("TOKEN",)), origin="cli")

    assert read_secrets(store.home, row.id) == {"TOKEN": "very-hidden"}
    assert secrets_file(store.home, row.id).stat().st_mode & 0o777 == 0o600
    assert "very-hidden" not in store.home.job(row.id).job_file.read_text()


def test_the_manifest_that_was_made_of_a_command_line_is_kept_where_that_is_asked_for(
    store: Store, woken: list[Home]
) -> None:
    asked = submit(store, prepared(store.home), origin="cli", keep_manifest=True)
    other = submit(store, prepared(store.home), origin="cli")

    file = store.home.job(asked.id).manifest
    assert file.read_text() == detail(store, asked.id).manifest_text != ""
    assert file.stat().st_mode & 0o777 == 0o600
    assert not store.home.job(other.id).manifest.exists()


def test_a_job_whose_manifest_cannot_be_written_to_a_file_runs_all_the_same(
    store: Store, woken: list[Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    notes: list[str] = []
    store.note_by(notes.append)
    monkeypatch.setattr(paths, "write_private", is_full)

    row = submit(store, prepared(store.home), origin="cli", keep_manifest=True)

    assert [each.id for each in list_jobs(store)] == [row.id]
    assert woken == [store.home]
    assert notes == ["the manifest of this command line is not written to a file: No space left on device"]


def test_a_search_is_no_job(store: Store, woken: list[Home]) -> None:
    made = prepared(store.home)
    made = replace(made, loaded=load_text(SEARCH, "m.yml", environ={}, defaults={}))

    with pytest.raises(UsageError, match="this manifest is a search") as refused:
        submit(store, made, origin="cli")

    assert "--set search=null" in refused.value.hint
    assert (list_jobs(store), woken) == ([], [])


def test_a_copy_of_a_home_takes_no_job(store: Store, woken: list[Home]) -> None:
    made = prepared(store.home)
    copy = copied(store.home, store.home.path.with_name("copy"))

    with Store.open(copy) as elsewhere:
        with pytest.raises(HomeNotBound, match="is a copy of the home") as refused:
            submit(elsewhere, replace(made, secrets={"TOKEN": "x"}), origin="cli")
        assert list_jobs(elsewhere) == []

    assert refused.value.hint.startswith(f"FABRIC_HOME={store.home.path} steers its jobs")
    assert not copy.secrets.exists()
    assert woken == []


def test_a_full_disk_leaves_nothing_of_a_job(clean_environment: Path, woken: list[Home]) -> None:
    with (
        small_disk(clean_environment / "disk", size="4m") as disk,
        Store.open(Home(disk / "fabric")) as store,
    ):
        made = replace(prepared(store.home), secrets={"TOKEN": "x"})
        fill(disk)

        with pytest.raises(CannotWrite, match="full"):
            submit(store, made, origin="cli")

        assert list_jobs(store) == []
        assert not store.home.jobs.exists() or list(store.home.jobs.iterdir()) == []
        assert not store.home.secrets.exists() or list(store.home.secrets.iterdir()) == []
    assert woken == []


def test_a_home_without_its_database_takes_no_job(home: Home, woken: list[Home]) -> None:
    with Store.open(home) as store:
        submit(store, prepared(home), origin="cli")
    for file in home.path.glob("fabric.db*"):
        file.unlink()

    with pytest.raises(InputMissing, match="is lost; 1 job folder is left") as refused, Store.open(home):
        pass

    assert "fabric doctor --rebuild" in refused.value.hint


def test_what_a_person_reads_says_what_runs_where_and_its_code(store: Store, woken: list[Home]) -> None:
    made = prepared(store.home)
    row = submit(store, made, origin="cli")
    again = prepared(store.home)

    first, code = submission_lines(made, row)

    assert first == f"{row.id.removeprefix('training-')} digits: 1 learner on local, as process"
    assert code == "code: 1 file, 17 B"
    assert submission_lines(again, row)[1] == "code: 1 file, 17 B, unchanged"
    assert submission_lines(replace(made, code=None), row) == [first]
    learners = replace(made.loaded, spec=replace(made.loaded.spec, learners=2, gpus=1))
    assert (
        "digits: 2 learners with 1 GPU on local" in submission_lines(replace(made, loaded=learners), row)[0]
    )


def test_the_controller_starts_while_a_job_is_prepared(store: Store, woken: list[Home]) -> None:
    with ControllerStart(store.home):
        prepared(store.home)

    assert woken == [store.home]


def test_that_it_cannot_start_is_left_to_who_needs_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(home: Home) -> str:
        raise CannotWrite("the disk is full")

    monkeypatch.setattr("workbench.controller.client.connect.ensure_controller", fail)
    with ControllerStart(store.home):
        made = prepared(store.home)

    with pytest.raises(CannotWrite, match="the disk is full"):
        submit(store, made, origin="cli")


def test_no_controller_starts_for_a_copy(store: Store, woken: list[Home]) -> None:
    copy = copied(store.home, store.home.path.with_name("copy"))

    with pytest.raises(HomeNotBound), ControllerStart(copy):
        pytest.fail("it began")

    assert woken == []


# Several hosts together


def test_a_group_is_not_one_of_several_backends_of_a_search(home: Home, folder: Path) -> None:
    backends = "backends: [local, ssh://a+ssh://b]"
    (folder / "manifest.yml").write_text(SEARCH.replace("{metric: loss", f"{{{backends}, metric: loss"))

    with pytest.raises(UsageError, match=r"search\.backends: ssh://a[+]ssh://b is several hosts together"):
        prepare(RunOptions(manifest="manifest.yml"), home)


def test_a_job_over_several_hosts_keeps_to_the_smallest_limit_of_their_data_caches(home: Home) -> None:
    text = (
        "name: a\nframework: {command: 'true'}\ndata_stores:\n"
        "  - {id: s, type: mount_volume, training_data: {container: data}, connection: {path: /tmp}}\n"
    )
    spec = load_text(text, "manifest.yml", environ={}, defaults={}).spec
    file = paths.config_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    assert data_limit(spec, BOTH) == {}
    file.write_text('[data.cache_at]\nbox2 = "2GiB"\n')
    assert data_limit(spec, BOTH) == {"data_cache_bytes": 2 << 30}
    file.write_text('[data]\ncache = "1GiB"\n[data.cache_at]\nbox2 = "2GiB"\n')
    assert data_limit(spec, BOTH) == {"data_cache_bytes": 1 << 30}
