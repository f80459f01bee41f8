"""The collector ``auto`` on logs of real programs, and on lines that are made to cost."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.quick.metrics.corpus_score import Score, found_of, logs, plain, score_of, table
from tests.quick.metrics.costs import loops
from workbench.learner.collectors.auto.printed import CANDIDATES, NAMES, LineShapes, PrintedNumbers
from workbench.manifest import load_text
from workbench.services.inspect.metric_dry_run import extracted_values
from workbench.services.inspect.metric_manifest import UNNAMED, extractor_manifest

DOCS = Path(__file__).parents[3] / "docs" / "metrics.md"
HEAD = "name: log\nframework: {command: 'true'}\n"


def test_what_a_person_wants_is_recognised_in_logs_of_real_programs() -> None:
    score = Score()
    for log, _ in logs():
        score.add(score_of(log))
    assert score.logs >= 40
    series_recall, series_precision, points_recall, points_precision = score.ratios
    assert min(series_recall, series_precision) >= 0.95
    assert min(points_recall, points_precision) >= 0.98


def test_the_documented_scores_are_those_of_the_corpus() -> None:
    assert table() in DOCS.read_text(encoding="utf-8")


def test_the_manifest_of_a_log_finds_the_same_points_where_expressions_can() -> None:
    series = same = 0
    for log, _ in logs():
        data, wanted = log.read_bytes(), found_of(log)
        if not wanted:
            continue
        text = extractor_manifest(data)
        metrics = load_text(HEAD + text, log.name, environ={}, defaults={}).spec.evaluation_metrics
        assert metrics is not None
        found = {
            plain(name.removeprefix(f"{UNNAMED}/")): values
            for name, values in extracted_values(metrics, data).items()
        }
        comments = [line for line in text.splitlines() if line.startswith("#")]
        named = {
            plain(name.removeprefix(f"{UNNAMED}/"))
            for line in comments
            for name in re.findall(r"[^\s,:]+", line)
        }
        for name, values in wanted.items():
            is_same = repr(found.get(name)) == repr(values)
            assert is_same or name in named, (log.stem, name, comments)
            same += is_same
        series += len(wanted)
    assert same >= 0.8 * series


def read(data: bytes) -> tuple[int, PrintedNumbers]:
    """Feed a log in pieces; return how many points came."""
    printed = PrintedNumbers("auto")
    for begin in range(0, len(data), 65536):
        printed.output(data[begin : begin + 65536], min(len(data), begin + 65536), 0)
        printed.poll(begin)
    printed.finish(0)
    points = sum(len(column) for record in printed.take() for column in record.get("values", {}).values())
    return points, printed


def test_metrics_after_very_much_other_output_are_found() -> None:
    noise = b"".join(b"processing file %d of many, nothing to see\n" % n for n in range(30_000))
    assert read(noise + b"".join(b"step %d loss: 0.%d\n" % (n, n) for n in range(1, 9)))[0] == 8


def test_hostile_output_costs_bounded_time_and_memory() -> None:
    assert loops(read_hostile_output) < 1000


def read_hostile_output() -> None:
    assert read((b"loss=0.1 " * 1_200_000 + b"\n") * 2)[0] <= 2
    read(bytes(range(256)) * 40_000)
    shapes = LineShapes()
    for n in range(20_000):
        shapes.take(f"name{n}=0.{n} step {n}", 0)
    assert shapes.series <= NAMES
    assert len(shapes._candidates) <= CANDIDATES


@pytest.mark.parametrize(
    "piece",
    [
        "1",
        "1.",
        "1,111",
        "1:1",
        "1/",
        "1%|",
        "[",
        "[=",
        "a=1 ",
        "((",
        "0x",
        "- ",
        "\x1b[0",
        " ",
        "loss ",
        "e-",
        "--1",
    ],
)
def test_no_line_of_200_characters_costs_more_the_longer_it_is_than_in_proportion(piece: str) -> None:
    def cost(length: int) -> float:
        line = (piece * length)[:length]
        return loops(lambda: [LineShapes().take(line, 0) for _ in range(20)])

    assert cost(200) < 30
    assert cost(3200) < 300
