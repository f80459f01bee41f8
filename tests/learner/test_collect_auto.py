"""The collector ``auto``: printed numbers that come again, and what stops them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gate.lanes import examples
from tests.learner.agent import Learner
from tests.learner.collecting import Rig, context
from workbench.learner.collectors.auto.collector import AutoCollector
from workbench.learner.collectors.auto.printed import LOOKS, SEARCHED_BYTES, LineShapes

EPOCHS = b"".join(
    b"Epoch %d/9\nstep=%d loss: %.3f (0.5)\nval_acc: %d%% in 3.1s\n" % (e, e * 10, 1 / e, e * 7)
    for e in range(1, 9)
)


def rig(root: Path) -> Rig:
    where = context(root)
    return Rig(lambda: AutoCollector({}, where))


def read(*lines: str, expected: Sequence[str] = ()) -> dict[str, list[tuple[float | None, float]]]:
    """Return the series of some lines: steps and values by name."""
    shapes = LineShapes(expected)
    points = [point for line in lines for point in shapes.take(line, 0)] + shapes.finish()
    found: dict[str, list[tuple[float | None, float]]] = {}
    for point in points:
        for name, value in point.values.items():
            full = f"{point.group}/{name}" if point.group else name
            found.setdefault(full, []).append((point.step, value))
    return found


def test_a_series_is_given_from_its_first_line_on(tmp_path: Path) -> None:
    found = rig(tmp_path)
    found.print(b"epoch 1 loss 0.5\nepoch 2 loss 0.4\n")
    found.step()
    assert not found.points
    found.print(b"epoch 3 loss 0.3\n")
    found.step()
    assert found.points["", "", "loss"] == [(1, 0.5), (2, 0.4), (3, 0.3)]
    assert found.notes == ["metrics: loss by epoch, from lines like: epoch 3 loss 0.3"]


@pytest.mark.parametrize(
    ("line", "expected", "found"),
    [
        ("loss=0.5", ("loss",), {"loss": [(None, 0.5)]}),
        ("epoch 3: loss=0.5 acc=0.9", ("loss",), {"loss": [(3, 0.5)], "acc": [(3, 0.9)]}),
        ("final val_loss: 0.25", ("val_loss",), {"val_loss": [(None, 0.25)]}),
        ("loss=0.5", (), {}),
        ("loss=0.5", ("val_loss", "oss"), {}),
    ],
)
def test_a_line_of_an_expected_metric_counts_though_it_comes_once(
    line: str, expected: tuple[str, ...], found: dict[str, object]
) -> None:
    assert read("ready", line, expected=expected) == found


def test_an_expected_metric_is_found_behind_many_lines_that_give_nothing(tmp_path: Path) -> None:
    where = context(tmp_path)
    found = Rig(lambda: AutoCollector({"names": ["my_number"]}, where))
    found.print(b"".join(b"request %d took long\n" % number for number in range(3000)))
    found.print(b"my_number=0.5\n")
    found.finish()

    assert found.points["", "", "my_number"] == [(None, 0.5)]


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data())
def test_a_restart_at_any_instant_gives_each_point_once(
    tmp_path_factory: object, data: st.DataObject
) -> None:
    folder = Path(tmp_path_factory.mktemp("auto"))  # type: ignore[attr-defined] # pytest's factory
    found = rig(folder)
    whole = rig(folder)
    whole.print(EPOCHS)
    whole.finish()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(EPOCHS)), max_size=5)))
    for begin, end in zip([0, *cuts], [*cuts, len(EPOCHS)], strict=True):
        found.print(EPOCHS[begin:end])
        found.suffer(data)
    found.finish()
    assert found.points == whole.points
    assert len(whole.points["", "", "loss"]) == 8


def test_times_ids_sizes_dates_and_progress_are_no_series() -> None:
    lines = [
        f"2026-01-0{n} 10:00:0{n},12{n} INFO pid={n}71 port: 80{n} took {n}.5s mem={n}.2GB 10.0.0.{n} v1.{n}.0 {n}0%"
        for n in range(1, 7)
    ]
    assert not read(*lines, *(f"Downloading shard {n}/6 from /data/{n}/x size: {n}" for n in range(1, 7)))


def test_train_and_validation_are_kept_apart() -> None:
    lines = [
        line
        for epoch in range(1, 5)
        for line in (f"Train Epoch {epoch} loss: 0.{epoch}", f"Test set: Average loss: 1.{epoch}")
    ]
    assert set(read(*lines)) == {"train/loss", "test/Average_loss"}


def test_columns_under_a_header_are_read() -> None:
    found = read(
        "epoch     train_loss  valid_loss  accuracy  time    ",
        *(f"{n}         0.{n}00000    0.{n}50000    0.9{n}0000  00:0{n}    " for n in range(4)),
    )
    assert {name: len(points) for name, points in found.items()} == {
        "train_loss": 4,
        "valid_loss": 4,
        "accuracy": 4,
    }
    assert found["accuracy"][-1] == (3, 0.93)


def noise(lines: int) -> bytes:
    return b"".join(b"fetched object %d of many, 12 bytes, nothing to see\n" % n for n in range(lines))


def test_a_recognised_series_is_found_in_any_amount_of_other_output(tmp_path: Path) -> None:
    found = rig(tmp_path)
    found.print(b"".join(b"it %d mae 0.%d\n" % (step, step) for step in range(1, 4)))
    for step in range(4, 10):
        found.print(noise(2 * SEARCHED_BYTES // 50) + b"it %d mae 0.%d\n" % (step, step))
    found.finish()
    assert found.points["", "", "mae"] == [(step, step / 10) for step in range(1, 10)]


def test_output_that_comes_slowly_is_read_whatever_came_before(tmp_path: Path) -> None:
    found = rig(tmp_path)
    found.print(noise(2 * LOOKS))
    for step in range(1, 9):
        found.step(milliseconds=1000)
        found.print(b"it %d reward 0.%d\n" % (step, step) + noise(20))
    found.finish()
    assert [value for _, value in found.points["", "", "reward"]] == [step / 10 for step in range(1, 9)]


def test_a_flood_is_left_unread_until_it_ends_and_what_follows_is_read(tmp_path: Path) -> None:
    found = rig(tmp_path)
    for _ in range(4):
        found.print(noise(SEARCHED_BYTES // 50))
    assert found.collector.pass_over(len(found.output), found.now_us)
    found.print(b"it 1 lo")
    found.step(milliseconds=1000)
    found.print(b"ss 0.1\n")
    for step in range(2, 9):
        found.step(milliseconds=1000)
        assert not found.collector.pass_over(len(found.output), found.now_us)
        found.print(b"it %d loss 0.%d\n" % (step, step))
    found.finish()
    assert found.points["", "", "loss"] == [(step, step / 10) for step in range(1, 9)]


def test_lines_that_only_count_are_not_read_each_and_still_say_the_step() -> None:
    lines = [f"[{n}/900] shard-{n:05}.tar ({n}.1 MB)" for n in range(1, 100)]
    for step in range(100, 104):
        lines += [f"[{step}/900] shard-{step:05}.tar ({step}.1 MB)", f"loss: 0.{step}"]
    assert read(*lines) == {"loss": [(step, float(f"0.{step}")) for step in range(100, 104)]}


def test_a_block_that_names_its_step_behind_its_values_is_one_point() -> None:
    lines = [
        line
        for n in range(1, 5)
        for line in (
            "Result for PPO:", "  date: 2024-03-01_10-00-00", f"  episode_reward_mean: {n}.5",
            f"  episodes_total: {n * 190}", f"  iterations_since_restore: {n}", f"  training_iteration: {n}", "",
        )
    ]  # fmt: skip
    assert read(*lines) == {"episode_reward_mean": [(n, n + 0.5) for n in range(1, 5)]}


def test_indented_lines_of_one_name_are_a_point_each() -> None:
    assert read(*(f"  loss: 0.{n}" for n in range(1, 6))) == {"loss": [(None, n / 10) for n in range(1, 6)]}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("INFO trainer:evaluate:88 - step={n}/90 loss=0.{n} lr=1e-0{n} tok/s=12{n}", {"loss", "lr", "tok/s"}),
        ("1|{n}|Loss: 0.{n}: {n}0%|##  | {n}/10 [00:0{n}<01:00,  1.0s/it]", {"Loss"}),
        ("INFO:root:Epoch {n} finished. Train loss: 0.{n} Val loss: 0.{n}1", {"Train_loss", "Val_loss"}),
    ],
)
def test_places_in_code_and_what_surrounds_a_name_are_no_part_of_it(line: str, found: set[str]) -> None:
    names = read(*(line.replace("{n}", str(n)) for n in range(1, 8)))
    assert {name.rpartition("/")[2] if name != "eval/tok/s" else "tok/s" for name in names} == found


def test_a_count_of_all_updates_goes_before_that_of_an_epoch() -> None:
    lines = [f"epoch {n // 4}: {n % 4} / 4 loss=0.{n}, num_updates={n * 25}" for n in range(4, 9)]
    assert read(*lines) == {"loss": [(n * 25, n / 10) for n in range(4, 9)]}


def test_a_bracket_over_several_columns_is_no_part_of_their_names() -> None:
    found = read(
        "Class  Images  Box(P  R  mAP50  mAP50-95)",
        *(f"all  4  0.6{n}  0.5{n}  0.7{n}  0.4{n}" for n in range(5)),
    )
    assert set(found) == {"P", "R", "mAP50", "mAP50-95"}


def test_a_bar_among_other_output_is_found_by_its_returns(tmp_path: Path) -> None:
    found = rig(tmp_path)
    bar = b"".join(
        b"\rtrain: %d%%|##  | %d/40 [00:0%d<00:01, loss=0.%02d]" % (n, n, n % 9, n) for n in range(1, 41)
    )
    found.print(bar[: len(bar) // 2])
    found.print(noise(2 * LOOKS).replace(b"\n", b"\r"))
    found.print(bar[len(bar) // 2 :] + b"\n")
    found.finish()
    assert len(found.points["train", "", "loss"]) >= 39


@pytest.mark.parametrize("kind", ["long lines", "binary", "shapes"])
def test_a_hostile_log_loses_no_line(learner: Callable[..., Learner], kind: str) -> None:
    write = {
        "long lines": "for n in range(3): out.write(b'loss=0.5 step %d ' % n * 700_000 + b'\\n')",
        "binary": "import random; out.write(random.Random(1).randbytes(5_000_000))",
        "shapes": "for n in range(100_000): out.write(b'name%d=0.%d step %d\\n' % (n, n, n))",
    }[kind]
    program = f"import sys; out = sys.stdout.buffer\n{write}\nout.write(b'\\nthe end\\n')"
    one = learner(f"exec $PYTHON - <<'END'\n{program}\nEND", metrics={"type": "auto"})
    one.run(120)
    assert one.output().endswith(b"\nthe end\n")
    assert len(one.output()) == (one.folder / "output.log").stat().st_size
    if kind == "shapes":
        assert one.output().count(b"\n") == 100_002
