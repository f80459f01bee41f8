"""Which checkpoints stay once a search has completed: the table of Determined's documentation."""

from __future__ import annotations

import pytest

from workbench.controller.decide.retention import SavedCheckpoint, kept_at_end, removable_names
from workbench.spec import CheckpointsAtEnd

VALUES = {1: None, 2: None, 3: 0.6, 4: 0.5, 5: 0.4, 6: None, 7: 0.2, 8: 0.3, 9: None, 10: None}
"""The metric of each checkpoint; the first five are of one trial, the others of another."""
SAVED = [SavedCheckpoint("12"[id > 5], str(id), id, value) for id, value in VALUES.items()]


def kept(rule: CheckpointsAtEnd, *, sign: int = 1, going_on: tuple[str, ...] = ()) -> set[int]:
    saved = [
        SavedCheckpoint(each.job_id, each.name, each.order, None if each.value is None else sign * each.value)
        for each in SAVED
    ]
    found = kept_at_end(saved, rule, smaller_is_better=sign > 0, going_on=going_on)
    return {int(each.name) for each in found}


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("best_of_search", "best", "last", "ids"),
    [
        (0, 0, 0, set()),
        (2, 0, 0, {8, 7}),
        (5, 0, 0, {8, 7, 5, 4, 3}),
        (9, 0, 0, {8, 7, 5, 4, 3}),
        (0, 1, 0, {7, 5}),
        (0, 3, 0, {8, 7, 5, 4, 3}),
        (0, 9, 0, {8, 7, 5, 4, 3}),
        (0, 0, 1, {10, 5}),
        (0, 0, 3, {10, 9, 8, 5, 4, 3}),
        (2, 1, 0, {8, 7, 5}),
        (2, 0, 1, {10, 8, 7, 5}),
        (0, 1, 1, {10, 7, 5}),
        (2, 1, 1, {10, 8, 7, 5}),
    ],
)
def test_the_checkpoints_of_the_table_stay(
    best_of_search: int, best: int, last: int, ids: set[int], sign: int
) -> None:
    rule = CheckpointsAtEnd(keep_last=last, keep_best=best, keep_best_of_search=best_of_search)

    assert kept(rule, sign=sign) == ids


def test_a_trial_that_may_go_on_has_its_newest_whatever_the_rule_says() -> None:
    assert kept(CheckpointsAtEnd(keep_last=0), going_on=("2",)) == {10}


def test_of_equal_ones_the_newer_is_the_better() -> None:
    saved = [SavedCheckpoint("1", str(order), order, 0.5) for order in (1, 2)]

    found = kept_at_end(saved, CheckpointsAtEnd(keep_last=0, keep_best=1), smaller_is_better=True)

    assert [each.name for each in found] == ["2"]


def test_one_that_may_be_the_best_stays_where_the_best_do() -> None:
    saved = [SavedCheckpoint("1", "1", 1, 0.5), SavedCheckpoint("1", "2", 2, None, is_unknown=True)]

    def names(rule: CheckpointsAtEnd) -> set[str]:
        return {each.name for each in kept_at_end(saved, rule, smaller_is_better=True)}

    assert names(CheckpointsAtEnd(keep_last=0, keep_best=1)) == {"1", "2"}
    assert names(CheckpointsAtEnd(keep_last=0, keep_best_of_search=1)) == {"1", "2"}
    assert names(CheckpointsAtEnd(keep_last=0)) == set()


@pytest.mark.parametrize(
    ("staying", "removed", "names"),
    [
        (["run/s1"], ["run", "run/s2", "other"], {"run/s2", "other"}),
        (["run"], ["run/s1", "runs"], {"runs"}),
        (["s1/"], ["s1"], set()),
        (["s1"], ["", ".", "..", "./s2", "s3/", "/s4", "../s5", "s6"], {"s6"}),
        (["."], ["s1"], set()),
    ],
)
def test_no_name_goes_that_is_around_or_inside_of_what_stays(
    staying: list[str], removed: list[str], names: set[str]
) -> None:
    assert removable_names(staying, removed) == names
