from __future__ import annotations

import math

import pytest

from workbench.job import JobId
from workbench.metrics.conditions import ConditionError, judge, parse
from workbench.store.db.rows import SeriesRow


def series(
    name: str, last: float | None, least: float = 0.0, greatest: float = 1.0, learner: int = 1
) -> SeriesRow:
    return SeriesRow(1, JobId("training-a"), learner, name, "value", 3, 7, 1, last, least, greatest, 1)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("accuracy>=0.9", True),
        ("accuracy >= 90%", True),
        ("test/accuracy==0.9", True),
        ("ACCURACY>0.9", False),
        ("min(accuracy)<0.1", True),
        ("max( accuracy ) > 1", False),
        ("accuracy!=0.9", False),
        ("nan>0", False),
        ("missing<1", False),
    ],
)
def test_a_condition_is_held_against_a_metric_by_its_last_part(text: str, holds: bool) -> None:
    known = [series("test/accuracy", 0.9, least=0.05), series("nan", math.nan), series("accuracy2", 5.0)]

    (verdict,) = judge(parse(text), known)

    assert verdict.holds is holds
    assert verdict.sentence


def test_several_stand_beside_each_other() -> None:
    assert [each.text for each in parse("loss<1, acc>=0.5 and min(loss) < 0.1")] == [
        "loss<1",
        "acc>=0.5",
        "min(loss) < 0.1",
    ]


def test_the_first_learner_counts_and_a_whole_name_before_a_part_of_one() -> None:
    known = [series("train/loss", 3.0), series("loss", 2.0, learner=2), series("loss", 1.0)]

    assert judge(parse("loss<9"), known)[0].value == 1.0


def test_a_metric_that_was_never_reported_names_those_there_are() -> None:
    (verdict,) = judge(parse("acc>1"), [series("train/loss", 1.0)])

    assert verdict.sentence == "acc was never reported; there are train/loss"
    assert verdict.value is None


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("loss", "loss"),
        ("a>1 loss<<1", "<<"),
        ("loss<one", "one"),
        ("best(loss)<1", "best"),
        ("min()<1", "min()<1"),
        ("  ", "  "),
        ("a>1 ???", "???"),
    ],
)
def test_what_cannot_be_read_is_pointed_at(text: str, part: str) -> None:
    with pytest.raises(ConditionError) as caught:
        parse(text)

    assert text[caught.value.start : caught.value.end] == part
