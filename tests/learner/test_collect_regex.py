"""``regex_extractor`` finds what FfDL's finds, misses nothing, and outlives its own end and any regex."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gate.lanes import examples
from tests.learner.collecting import Rig, context
from workbench.learner.collectors import make
from workbench.learner.collectors.interface import Collector, Context
from workbench.learner.collectors.regex.collector import RegexCollector
from workbench.learner.collectors.regex.groups import MACROS, expand
from workbench.learner.collectors.subprocess import FailsafeCollector


def group(regex: str, *, etimes: dict[str, str] | None = None, **scalars: str) -> dict[str, Any]:
    return {
        "regex": regex,
        "scalars": {name: {"type": kind, "value": "$" + name} for name, kind in scalars.items()},
        "etimes": {name: {"type": kind, "value": "$" + name} for name, kind in (etimes or {}).items()},
    }


LOSS = {"train": group("loss=%{FLOAT:loss}", loss="FLOAT")}

CAFFE = {
    "test": group(
        r"%{GLOG_STAMP:glogstamp}.*Iteration %{INT:iteration}, Testing.*\n"
        r".*Test net output .* accuracy = %{FLOAT:accuracy}\n"
        r".*Test net output .* loss = %{FLOAT:loss}",
        etimes={"iteration": "INT", "glogstamp": "STRING"},
        accuracy="FLOAT",
        loss="FLOAT",
    ),
    "train": group(
        r"%{GLOG_STAMP:glogstamp}.*Iteration %{INT:iteration}.*loss = %{FLOAT:loss}.*\n.*lr = %{FLOAT:lr}",
        etimes={"iteration": "INT", "glogstamp": "STRING"},
        loss="FLOAT",
        lr="FLOAT",
    ),
}

CAFFE_LOG = b"""\
I0712 10:00:00.000001 1 solver.cpp:331] Iteration 0, Testing net (#0)
I0712 10:00:01.000001 1 solver.cpp:414]     Test net output #0: accuracy = 0.1
I0712 10:00:01.000002 1 solver.cpp:414]     Test net output #1: loss = 2.3 (* 1 = 2.3 loss)
I0712 10:00:02.000001 1 solver.cpp:239] Iteration 0 (0 iter/s, 0.1s/100 iters), loss = 2.4
I0712 10:00:02.000002 1 sgd_solver.cpp:106] Iteration 0, lr = 0.01
I0712 10:00:09.000001 1 blocking_queue.cpp:49] Waiting for data
I0712 10:00:10.000001 1 solver.cpp:331] Iteration 100, Testing net (#0)
I0712 10:00:11.000001 1 solver.cpp:414]     Test net output #0: accuracy = 0.7
I0712 10:00:11.000002 1 solver.cpp:414]     Test net output #1: loss = 0.9 (* 1 = 0.9 loss)
"""


NOWHERE = Context("", "/nowhere/logs", "/nowhere", 1, {}, owns_log_dir=False)


def rig(tmp_path: Path, groups: dict[str, Any], **metrics: Any) -> Rig:
    where = context(tmp_path)
    return Rig(lambda: RegexCollector({"groups": groups, **metrics}, where))


def values(found: Rig, group: str, name: str, subid: str = "") -> list[Any]:
    return [value for _step, value in found.points.get((group, subid, name), [])]


def test_caffes_log_gives_what_ffdls_readme_says(tmp_path: Path) -> None:
    found = rig(tmp_path, CAFFE, line_lookahead=4)
    found.print(CAFFE_LOG)
    found.finish()

    assert found.points["test", "", "accuracy"] == [(0, 0.1), (100, 0.7)]
    assert found.points["test", "", "loss"] == [(0, 2.3), (100, 0.9)]
    assert found.points["train", "", "lr"] == [(0, 0.01)]
    assert values(found, "test", "iteration") == [0, 100]
    assert values(found, "test", "glogstamp")[0] == "I0712 10:00:00.000001"


def test_a_line_that_matches_is_seen_at_once_and_none_is_lost_to_the_lines_before_it(tmp_path: Path) -> None:
    found = rig(tmp_path, LOSS)
    found.print(b"junk\nmore junk\nloss=1\nloss=2\nsomething\nloss=3\n")
    found.step()

    assert values(found, "train", "loss") == [1.0, 2.0, 3.0]


def test_the_first_group_that_matches_wins_and_its_lines_are_used_up(tmp_path: Path) -> None:
    groups = {
        "pair": group(r"a=%{INT:a}\nb=%{INT:b}", a="INT", b="INT"),
        "b": group("b=%{INT:b}", b="INT"),
    }
    found = rig(tmp_path, groups)
    found.print(b"a=1\nb=2\nb=3\na=4\n\nb=5\n")
    found.finish()

    assert values(found, "pair", "b") == [2]
    assert values(found, "b", "b") == [3, 5]


@pytest.mark.parametrize("lookahead", [0, None])
def test_without_a_lookahead_windows_are_of_four_lines(tmp_path: Path, lookahead: int | None) -> None:
    groups = {"g": group(r"begin.*end=%{INT:end}", end="INT")}
    found = rig(tmp_path, groups, line_lookahead=lookahead)
    found.print(b"begin\n2\n3\nend=1\nbegin\n2\n3\n4\nend=2\n")
    found.finish()

    assert values(found, "g", "end") == [1]


def test_the_last_line_counts_though_it_has_no_end(tmp_path: Path) -> None:
    found = rig(tmp_path, LOSS)
    found.print(b"loss=1\nbegin\nloss=2")
    found.finish()

    assert values(found, "train", "loss") == [1.0, 2.0]


def test_progress_bars_are_lines(tmp_path: Path) -> None:
    found = rig(tmp_path, LOSS)
    found.print(b"\rloss=1 10%\rloss=2 20%\r\nloss=3\r\n")
    found.step()

    assert values(found, "train", "loss") == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("macro", "texts"),
    [
        ("GLOG_STAMP", ["I0712 10:00:00.1", "W1231 23:59:59.999999"]),
        ("TIMESTAMP", ["2018-05-01T12:00:00.123Z", "2018-05-01T12:00:00+02:00", "2018-05-01 12:00:00,5"]),
        ("FLOAT", ["1", "-1.5", "+.5", "3.", "1e-5", "2.5E+10", "nan", "-inf", "Infinity", "NaN"]),
        ("INT", ["0", "-12", "+7"]),
        ("INT_ANY", ["0x1F", "017", "42", "-0XaB"]),
        ("HEX", ["ff", "0xDEAD", "-1a"]),
    ],
)
def test_each_macro_takes_what_it_is_for(tmp_path: Path, macro: str, texts: list[str]) -> None:
    found = rig(tmp_path, {"g": group(f"v=%{{{macro}:v}};$", v="STRING")})
    found.print("".join(f"v={text};\n" for text in texts).encode())
    found.finish()

    assert values(found, "g", "v") == texts


def test_macros_may_be_nested_and_unbound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MACROS, "PAIR", "%{INT}/%{INT:of}")

    assert expand("x%{PAIR:p}") == r"x(?P<p>(?:[-+]?\d+)/(?P<of>[-+]?\d+))"


def test_a_macro_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"%\{FLOTE\}.*FLOAT, GLOG_STAMP"):
        RegexCollector({"groups": {"g": group("%{FLOTE:x}")}}, context(tmp_path))


@pytest.mark.parametrize("regex", ["(", "a{99999999999}", "(?P<1>x)"])
def test_a_regex_that_is_none_becomes_a_note_and_the_learner_goes_on(tmp_path: Path, regex: str) -> None:
    where = context(tmp_path)
    collector = make({"type": "regex_extractor", "groups": {"g": {"regex": regex}}}, where)[0]
    collector.output(b"loss=1\n", 7, 1)
    records = collector.take()

    assert [record["kind"] for record in records] == ["note"]
    assert "regular expression" in records[0]["text"]
    assert not collector.wants_output


def test_a_value_that_is_not_bound_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\$lose is not bound.*\$loss"):
        RegexCollector(
            {"groups": {"g": {"regex": "%{INT:loss}", "scalars": {"l": {"value": "$lose"}}}}},
            context(tmp_path),
        )


def test_values_have_their_types_and_may_be_literal(tmp_path: Path) -> None:
    scalars = {
        "int": {"type": "INT", "value": "$hex"},
        "float": {"type": "FLOAT", "value": "$float"},
        "text": {"type": "STRING", "value": "$float"},
        "json": {"type": "JSONSTRING", "value": "$json"},
        "one": {"type": "INT", "value": "1"},
    }
    regex = r"%{HEX:hex} %{FLOAT:float} (?P<json>\S+)"
    found = rig(tmp_path, {"g": {"regex": regex, "scalars": scalars}})
    found.print(b"0x10 2.50 [1]\n12 nan 7\n9 -inf true\n")
    found.finish()

    assert values(found, "g", "int") == [16, 12, 9]
    assert values(found, "g", "float") == [2.5, None, "-inf"]
    assert values(found, "g", "text") == ["2.50", "nan", "-inf"]
    assert values(found, "g", "json") == ["[1]", 7, 1]
    assert values(found, "g", "one") == [1, 1, 1]


def test_what_is_not_of_its_type_is_left_out_and_named_once(tmp_path: Path) -> None:
    found = rig(tmp_path, {"g": group(r"a=(?P<a>\S+) b=%{INT:b}", a="INT", b="INT")})
    found.print(b"a=1 b=2\na=x b=3\na=y b=4\n")
    found.finish()

    assert values(found, "g", "a") == [1]
    assert values(found, "g", "b") == [2, 3, 4]
    assert [text for text in found.notes if "a is not always of its type" in text] == found.notes
    assert len(found.notes) == 1


def test_the_step_is_the_best_of_the_evaluation_times(tmp_path: Path) -> None:
    etimes = {"epoch": "INT", "iteration": "INT"}
    groups = {
        "both": group("e%{INT:epoch} i%{INT:iteration} l=%{FLOAT:l}", etimes=etimes, l="FLOAT"),
        "epoch": group("e%{INT:epoch} l=%{FLOAT:l}", etimes={"epoch": "INT"}, l="FLOAT"),
    }
    found = rig(tmp_path, groups)
    found.print(b"e1 i50 l=0.5\ne2 l=0.25\n")
    found.finish()

    assert found.points["both", "", "l"] == [(50, 0.5)]
    assert found.points["epoch", "", "l"] == [(2, 0.25)]
    assert values(found, "both", "epoch") == [1]


def test_a_step_is_exact_to_64_bits_though_its_evaluation_time_is_a_float(tmp_path: Path) -> None:
    etimes = {"iteration": "INT"}
    found = rig(tmp_path, {"g": group("i%{INT:iteration} l=%{FLOAT:l}", etimes=etimes, l="FLOAT")})
    steps = [2**53 + 1, 2**62 + 3, -(2**53) - 1, 2**63 - 1]
    found.print("".join(f"i{step} l=0.5\n" for step in steps).encode())
    found.finish()

    assert found.points["g", "", "l"] == [(step, 0.5) for step in steps]


def test_time_and_subid_of_a_group_are_honoured(tmp_path: Path) -> None:
    regex = "%{TIMESTAMP:at} w%{INT:worker} loss=%{FLOAT:loss}"
    where = {**group(regex, loss="FLOAT"), "time": "$at", "subid": "$worker"}
    nested = {**group("other=%{FLOAT:loss}", loss="FLOAT"), "meta": {"subid": "fixed"}}
    found = rig(tmp_path, {"g": where, "h": nested})
    found.print(b"2018-05-01T12:00:00.25Z w3 loss=1\nother=2\n")
    found.finish()

    times = [record["times"] for record in found.written if record["kind"] == "metrics"]
    assert times[0] == [1_525_176_000_250_000]
    assert values(found, "g", "loss", "3") == [1.0]
    assert values(found, "h", "loss", "fixed") == [2.0]


def test_a_catastrophic_regex_is_given_up_and_the_others_go_on(tmp_path: Path) -> None:
    groups = {"bad": group(r"(?P<x>(a+)+)$", x="STRING"), **LOSS}
    found = rig(tmp_path, groups)
    found.print(b"a" * 60 + b"!\nloss=1\n")
    found.finish()

    assert values(found, "train", "loss") == [1.0]
    assert found.notes == ["group bad: its regex takes too long and is not used any more"]


def test_a_huge_line_is_matched_by_its_beginning(tmp_path: Path) -> None:
    found = rig(tmp_path, LOSS)
    found.print(b"loss=1 " + b"x" * 5_000_000, cuts=range(0, 5_000_000, 65536))
    found.print(b"\nloss=2\n")
    found.finish()

    assert values(found, "train", "loss") == [1.0, 2.0]
    assert any("above 65536 bytes" in text for text in found.notes)


@pytest.mark.parametrize("source", ["", "$JOB_STATE_DIR/logs/training-log.txt", "logs/training-log.txt"])
def test_the_learners_own_output_is_the_default_and_ffdls_log_file(tmp_path: Path, source: str) -> None:
    found = rig(tmp_path, LOSS, source=source)
    found.print(b"loss=1\n")
    found.finish()

    assert values(found, "train", "loss") == [1.0]


def test_ffdls_log_files_below_log_dir_are_read_with_their_folder_as_subid(tmp_path: Path) -> None:
    found = rig(tmp_path, LOSS, source="${LOG_DIR}")
    logs = tmp_path / "job" / "logs"
    (logs / "worker-2").mkdir()
    (logs / "user_log.txt").write_text("loss=2\n")
    (logs / "worker-2" / "training-log.txt").write_text("loss=3\n")
    (logs / "training-log.txt").write_text("loss=9\n")  # a copy of the output, made by the command
    found.print(b"loss=1\n")
    found.finish()

    assert sorted(values(found, "train", "loss")) == [1.0, 2.0]
    assert values(found, "train", "loss", "worker-2") == [3.0]


def test_a_file_that_in_names_is_read_instead_of_the_output(tmp_path: Path) -> None:
    found = rig(tmp_path, LOSS, source="$JOB_STATE_DIR/mine.csv")
    (tmp_path / "job" / "mine.csv").write_text("loss=5\nloss=6")
    found.finish()

    assert not found.collector.wants_output
    assert values(found, "train", "loss") == [5.0, 6.0]


def test_files_of_a_shared_folder_are_left_to_learner_1(tmp_path: Path) -> None:
    where = context(tmp_path, learner=2, owns_log_dir=False)
    (tmp_path / "job" / "logs" / "user_log.txt").write_text("loss=2\n")
    found = Rig(lambda: RegexCollector({"groups": LOSS}, where))
    found.print(b"loss=1\n")
    found.finish()

    assert values(found, "train", "loss") == [1.0]


LINES = [
    b"a=1 loss=%d\n",
    b"a=2\n",
    b"b=%d\n",
    b"junk\n",
    b"a=3\r",
    b"\n",
    "größe\n".encode(),
    b"x" * 70 + b"\n",
]
GROUPS = {
    "multi": group(r"a=%{INT:a}\n.*b=%{INT:b}", a="INT", b="INT"),
    "one": group("a=%{INT:a} loss=%{FLOAT:loss}", etimes={"a": "INT"}, loss="FLOAT"),
    "b": group(".*b=%{INT:b}", b="INT"),
}


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data())
def test_killed_anywhere_no_point_is_lost_or_doubled(data: st.DataObject, tmp_path_factory: Any) -> None:
    where = context(tmp_path_factory.mktemp("regex"))
    metrics = {"groups": GROUPS, "line_lookahead": data.draw(st.integers(1, 4))}

    def collector() -> Collector:
        return RegexCollector(metrics, where)

    lines = data.draw(st.lists(st.sampled_from(LINES), max_size=40))
    output = b"".join(line % index if b"%" in line else line for index, line in enumerate(lines))
    whole = Rig(collector)
    whole.print(output)
    whole.finish()

    harmed = Rig(collector)
    while len(harmed.output) < len(output):
        size = data.draw(st.integers(1, 60))
        harmed.print(output[len(harmed.output) :][:size])
        action = data.draw(st.sampled_from(["nothing", "step", "mark", "kill"]))
        if action == "step":
            harmed.step(milliseconds=data.draw(st.sampled_from([10, 200])))
        elif action == "mark":
            harmed.mark()
        elif action == "kill":
            harmed.step(lost=data.draw(st.integers(0, 3)))
            harmed.kill()
    harmed.finish()

    assert harmed.points == whole.points


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.sampled_from(LINES), max_size=30),
    st.lists(st.integers(0, 2000), max_size=10),
    st.integers(1, 5),
)
def test_points_depend_on_the_lines_alone_not_on_how_they_arrive(
    lines: list[bytes], cuts: list[int], lookahead: int
) -> None:
    output = b"".join(line % index if b"%" in line else line for index, line in enumerate(lines))
    found = []
    for places in ([], cuts):
        run = Rig(lambda: RegexCollector({"groups": GROUPS, "line_lookahead": lookahead}, NOWHERE))
        run.print(output, cuts=places)
        run.finish()
        found.append(run.points)

    assert found[0] == found[1]


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="ab(|)*+?.[]^$\\n{1,2}%FLOAT:x}", max_size=25), st.binary(max_size=60))
def test_no_regex_and_no_output_raises(regex: str, output: bytes) -> None:
    collector = make({"type": "regex_extractor", "groups": {"g": {"regex": regex}}}, NOWHERE)[0]
    assert isinstance(collector, FailsafeCollector)
    collector.output(output, len(output), 1)
    collector.finish(2)
    for record in collector.take():
        json.dumps(record, allow_nan=False)
