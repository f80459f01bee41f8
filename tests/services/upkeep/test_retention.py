"""Which jobs and caches may be removed by a rule, what always stays, and what is left of what goes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.jobs import add_job
from tests.cli.journals import folder_of, write_output
from tests.services.stored import submitted
from tests.services.upkeep.searches import begin_search
from workbench.config import load_config
from workbench.errors import CannotWrite, ConfigError, TryAgain, UsageError
from workbench.job import Intent, Reason, State
from workbench.paths import Home
from workbench.services.upkeep.orphans import SUBMIT_SECONDS
from workbench.services.upkeep.retention import (
    RemovalPlan,
    Removed,
    RetentionRule,
    UnusedCache,
    plan_removal,
    removable_jobs,
    remove,
    rule_of,
)
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.updates.deletion import mark_deleted
from workbench.store.updates.experiments import record_event
from workbench.store.updates.jobs import NextAttempt, annotate, set_intent, step

DAY_US = 86_400_000_000
DAY_SECONDS = 86_400.0
ALL = RetentionRule(older_than_seconds=0.0)
PLAIN = "name: {}\nframework: {{command: 'true'}}\n"


@pytest.fixture
def rows(store: Store) -> dict[str, JobRow]:
    """Jobs that ended long ago, one that just has, and one that did not end."""
    made = {}
    for name, state in (
        ("old", State.COMPLETED),
        ("failed", State.FAILED),
        ("halted", State.HALTED),
        ("open", State.PROCESSING),
        ("new", State.COMPLETED),
    ):
        row = add_job(store, name, state, labels={"kind": name})
        if name != "new":
            store.execute("UPDATE jobs SET ended_us = ended_us - ? WHERE id = ?", (40 * DAY_US, row.id))
        made[name] = row
    return made


def names(store: Store, rule: RetentionRule) -> list[str]:
    return [row.name for row in removable_jobs(store, rule)]


# Rules


RULES: Sequence[tuple[RetentionRule, list[str]]] = (
    (RetentionRule(older_than_seconds=30 * DAY_SECONDS), ["old", "failed", "halted"]),
    (RetentionRule(older_than_seconds=41 * DAY_SECONDS), []),
    (ALL, ["old", "failed", "halted", "new"]),
    (RetentionRule(30 * DAY_SECONDS, keep_failed=True), ["old", "halted"]),
    (RetentionRule(keep_last=1), ["old", "failed", "halted"]),
    (RetentionRule(keep_last=3), ["old"]),
    (RetentionRule(keep_last=4), []),
    (RetentionRule(keep_last=1 << 62), []),
    (RetentionRule(30 * DAY_SECONDS, keep_last=3), ["old"]),
    (RetentionRule(where=("name:old or name:open",)), ["old"]),
    (RetentionRule(30 * DAY_SECONDS, where=("state:failed", "label.kind:failed")), ["failed"]),
)


def test_a_rule_chooses_among_the_jobs_that_are_over_the_oldest_first(
    store: Store, rows: dict[str, JobRow]
) -> None:
    assert [(rule, names(store, rule)) for rule, _ in RULES] == list(RULES)
    assert all(rule.chooses for rule, _ in RULES)


def test_a_rule_that_says_nothing_does_not_choose() -> None:
    assert not RetentionRule().chooses
    assert not RetentionRule(keep_failed=True, logs_only=True).chooses


def test_an_empty_store_has_nothing_to_remove(store: Store) -> None:
    plan = plan_removal(store, ALL)

    assert (plan.jobs, plan.caches, plan.freed_bytes, bool(plan)) == ((), (), 0, False)
    assert list(remove(store, plan, origin="test")) == []


def test_a_filter_that_cannot_be_read_is_refused(store: Store, rows: dict[str, JobRow]) -> None:
    with pytest.raises(UsageError, match="there is no field 'stat'"):
        plan_removal(store, RetentionRule(where=("stat:x",)))


@pytest.mark.parametrize(
    ("options", "retention", "rule"),
    [
        ({}, {}, RetentionRule()),
        ({"older_than": None, "keep_failed": False}, {"older_than": "30d", "keep_failed": True},
         RetentionRule(30 * DAY_SECONDS, keep_failed=True)),
        ({"older_than": "1h30m"}, {"older_than": "30d", "keep_last": 5}, RetentionRule(5400.0, keep_last=5)),
        ({"older_than": "0"}, {}, ALL),
        ({"keep_last": 0}, {"keep_last": 5}, RetentionRule()),
        ({"logs_only": True}, {}, RetentionRule(logs_only=True)),
    ],
)  # fmt: skip
def test_options_go_before_the_configuration(
    options: Mapping[str, Any], retention: Mapping[str, Any], rule: RetentionRule
) -> None:
    assert rule_of(options, retention) == rule
    assert rule_of(options, retention, ["name:a"]).where == ("name:a",)


@pytest.mark.parametrize("text", ["soon", "", "-1d", "nan", "inf", "1e9d", "11 years"])
def test_a_length_of_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--older-than: "):
        rule_of({"older_than": text}, {})


def test_fewer_than_no_jobs_cannot_be_kept(clean_environment: Path) -> None:
    (clean_environment / "config.toml").write_text("[retention]\nkeep_last = -1\n")

    with pytest.raises(ConfigError, match=r"retention\.keep_last must be 0 or more"):
        load_config()


# What always stays


def test_what_a_person_keeps_or_what_is_not_over_stays(store: Store, rows: dict[str, JobRow]) -> None:
    annotate(store, rows["old"].id, tags=["keep", "best"])
    set_intent(store, rows["failed"].id, Intent.DELETE)

    assert names(store, ALL) == ["halted", "new"]


def test_a_job_that_is_tried_again_is_not_over(store: Store, rows: dict[str, JobRow]) -> None:
    row = rows["open"]
    step(store, row.id, 1, State.STORING, Reason(""))
    step(store, row.id, 1, State.FAILED, Reason("x"), then=NextAttempt(Reason("again"), 1, 0, 1 << 60))

    assert names(store, RetentionRule(where=("name:open",))) == []


def test_a_deleted_job_is_none(store: Store, rows: dict[str, JobRow]) -> None:
    mark_deleted(store, rows["old"].id)

    assert names(store, ALL) == ["failed", "halted", "new"]


def test_what_an_open_job_comes_after_stays(store: Store) -> None:
    first = submitted(store, PLAIN.format("first"), state=State.COMPLETED)
    after = f"after: ['{first.id}:ended']\n"
    submitted(store, PLAIN.format("over") + after, state=State.COMPLETED)
    assert names(store, ALL) == ["first", "over"]

    submitted(store, PLAIN.format("open") + after)

    assert names(store, ALL) == ["over"]


def test_the_job_that_an_open_one_begins_with_stays(store: Store) -> None:
    first = submitted(store, PLAIN.format("first"), state=State.COMPLETED)
    begins = {"from": {"job": first.id, "step": 3, "name": "epoch-3.pt", "local": "/gone"}}
    submitted(store, PLAIN.format("over"), state=State.COMPLETED, recorded=begins)
    assert names(store, ALL) == ["first", "over"]

    submitted(store, PLAIN.format("open"), recorded=begins)

    assert names(store, ALL) == ["over"]


def test_trials_of_an_open_search_stay(store: Store) -> None:
    search = begin_search(store)
    submitted(store, PLAIN.format("trial-1"), state=State.HALTED, parent=search)
    submitted(store, PLAIN.format("other"), state=State.COMPLETED)
    assert names(store, ALL) == ["other"]

    record_event(store, search, {"do": "over", "state": "COMPLETED"})

    assert names(store, ALL) == ["trial-1", "other"]


def test_an_open_job_whose_file_has_vanished_keeps_no_rule_from_working(
    store: Store, rows: dict[str, JobRow]
) -> None:
    store.home.job(rows["open"].id).job_file.unlink()

    assert names(store, ALL) == ["old", "failed", "halted", "new"]


# What goes


def use(home: Home, row: JobRow) -> None:
    """Give a job a log and results."""
    write_output(folder_of(home, row), [b"x" * 100_000])
    home.job(row.id).results.mkdir(parents=True)
    (home.job(row.id).results / "model").write_bytes(b"y" * 50_000)


def test_a_plan_says_what_is_freed_and_changes_nothing(store: Store, rows: dict[str, JobRow]) -> None:
    use(store.home, rows["old"])

    plan = plan_removal(store, RetentionRule(where=("name:old",)))

    (found,) = plan.jobs
    assert (found.row.id, found.logs >= 100_000, found.results >= 50_000) == (rows["old"].id, True, True)
    assert plan.freed_bytes == plan.freed_of(found) == found.total
    assert (store.home.job(rows["old"].id).results / "model").exists()
    assert names(store, ALL)[0] == "old"


def test_only_logs_go_and_what_was_learnt_stays(store: Store, rows: dict[str, JobRow]) -> None:
    use(store.home, rows["old"])
    folder = store.home.job(rows["old"].id)
    own = folder.attempt(1).learner(1).path / "model-code" / "output.log"
    own.parent.mkdir()
    own.write_text("the command's own")
    rule = RetentionRule(older_than_seconds=30 * DAY_SECONDS, logs_only=True)

    plan = plan_removal(store, rule)
    (done,) = remove(store, plan, origin="test")

    assert done == Removed(rows["old"].id)  # the others never had a log
    assert plan.freed_bytes == plan.jobs[0].logs
    assert not folder.attempt(1).learner(1).output.exists()
    assert (folder.results / "model").exists()
    assert own.exists()
    (note,) = [json.loads(line) for line in folder.events.read_text().splitlines() if '"note"' in line]
    assert (note["text"], note["origin"]) == ("its logs were removed", "test")
    assert plan_removal(store, rule).jobs == ()


def test_logs_that_vanish_meanwhile_are_gone(store: Store, rows: dict[str, JobRow]) -> None:
    use(store.home, rows["old"])
    plan = plan_removal(store, RetentionRule(where=("name:old",), logs_only=True))
    store.home.job(rows["old"].id).attempt(1).learner(1).output.unlink()

    assert list(remove(store, plan, origin="test")) == [Removed(rows["old"].id)]


def test_what_cannot_be_removed_stays_with_its_error_and_the_rest_goes(store: Store) -> None:
    gone: list[str] = []

    def refuse() -> None:
        raise TryAgain("it is in use")

    plan = RemovalPlan(
        (),
        (
            UnusedCache("data", "1 at box", 1, refuse),
            UnusedCache("code", "abc", 2, lambda: os.unlink(store.home.path)),  # noqa: PTH108 - as the system says it
            UnusedCache("code", "def", 4, lambda: gone.append("def")),
        ),
        logs_only=False,
    )

    in_use, denied, done = remove(store, plan, origin="test")

    assert (in_use.name, str(in_use.error)) == ("1 at box", "it is in use")
    assert isinstance(denied.error, CannotWrite)
    assert str(denied.error).startswith("abc stays: ")
    assert (done, gone, plan.freed_bytes) == (Removed("def"), ["def"], 7)


# Caches


def pack(home: Home, name: str, *, age_seconds: float = SUBMIT_SECONDS + 60) -> Path:
    """Make a snapshot of code that was used so long ago."""
    home.code.mkdir(parents=True, exist_ok=True)
    file = home.code / f"{name * 16}.tar.gz"
    file.write_bytes(b"z" * 10_000)
    then = file.stat().st_mtime - age_seconds
    os.utime(file, (then, then))
    return file


def caches(store: Store, rule: RetentionRule = ALL, *, caches_only: bool = True) -> list[tuple[str, str]]:
    plan = plan_removal(store, rule, caches_only=caches_only)
    return [(each.kind, each.name) for each in plan.caches]


def test_code_and_environments_that_no_job_uses_go(store: Store) -> None:
    used, unused = pack(store.home, "aaaa"), pack(store.home, "bbbb")
    row = submitted(store, PLAIN.format("a"), state=State.COMPLETED, code_hash="aaaa" * 16)
    folder = store.home.job(row.id).attempt(1)
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.environment.write_text(json.dumps({"key": "e" * 64}))
    environments = [store.home.environments / key for key in ("e" * 64, "f" * 64, ".making")]
    for each in environments:
        each.mkdir(parents=True)

    plan = plan_removal(store, RetentionRule(), caches_only=True)
    done = list(remove(store, plan, origin="test"))

    assert [(each.kind, each.name) for each in plan.caches] == [
        ("code", "bbbb" * 3),
        ("environment", "f" * 12),
    ]
    assert done == [Removed("bbbb" * 3), Removed("f" * 12)]
    assert (used.exists(), unused.exists()) == (True, False)
    assert [path.exists() for path in environments] == [True, False, True]


def test_what_only_removed_jobs_used_goes_with_them(store: Store) -> None:
    pack(store.home, "aaaa")
    submitted(store, PLAIN.format("a"), state=State.COMPLETED, code_hash="aaaa" * 16)

    assert caches(store) == []
    assert caches(store, caches_only=False) == [("code", "aaaa" * 3)]
    assert caches(store, RetentionRule(where=("name:b",)), caches_only=False) == []


@pytest.mark.parametrize("text", ["", "[]", "{", '{"key": null}'])
def test_an_environment_of_which_nothing_is_known_belongs_to_no_job(store: Store, text: str) -> None:
    row = submitted(store, PLAIN.format("a"))
    folder = store.home.job(row.id).attempt(1)
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.environment.write_text(text)
    (store.home.environments / ("e" * 64)).mkdir(parents=True)

    assert caches(store) == [("environment", "e" * 12)]
