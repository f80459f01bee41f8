from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.logs.display import fitted, last_state, width
from workbench.logs.levels import Level, Levels, classify
from workbench.logs.line_index import LineIndex

N, D, I, W, E, T, B, R = Level  # noqa: E741 - one letter a level keeps the tables below readable


def level_of(line: bytes) -> Level:
    return Level(classify(line + b"\n")[0][0])


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("step 5 loss 0.3", N),
        ("2026-05-01 12:00:00,123 - train - DEBUG - x", D),
        ("[INFO] started", I),
        ("INFO:root:ok", I),
        ("I0501 12:00:00.123456 1 main.cc:5] ok", I),
        ("WARNING:tensorflow:old", W),
        ("[WARN] x", W),
        ("/a/b.py:5: UserWarning: look", W),
        ("W0501 12:00:00.123456 1 main.cc:5] x", W),
        ("warning: unused variable", W),
        ("ERROR: it failed", E),
        ("RuntimeError: CUDA error: out of memory", E),
        ("E0501 12:00:00.123456 1 main.cc:5] x", E),
        ("CRITICAL x", E),
        ("main.c:5:3: error: expected ;", E),
        ("fatal: not a git repository", E),
        ("panic: runtime error", E),
        ("Segmentation fault (core dumped)", E),
        ("bash: line 1: ERROR", E),
        ('{"level": "error", "msg": "x"}', E),
        ("level=warning msg=x", W),
        ("time=1 level=info", I),
        ('{"levelname": "DEBUG"}', D),
        ("Traceback (most recent call last):", T),
        # Words that only look like it.
        ("error_rate 0.05", N),
        ("INFORMATION", N),
        ("TERRORS", N),
        ("0 errors, 0 warnings", N),
        ("mean error 0.3", N),
        ("std::error::x", N),
        ("DEBUGGING", N),
    ],
)
def test_what_a_line_is(line: str, level: Level) -> None:
    assert level_of(line.encode()) is level


def test_of_two_levels_the_higher_counts() -> None:
    assert level_of(b"INFO retry after ERROR") is E


TRACE = b"""before
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    main()

  File "x.py", line 9, in main
ValueError: bad
after
"""


def test_a_traceback_is_one_thing_with_a_beginning() -> None:
    kinds, still_open = classify(TRACE)

    assert [Level(kind) for kind in kinds] == [N, T, B, B, B, B, R, N]
    assert not still_open


def test_two_tracebacks_in_a_row_have_two_beginnings() -> None:
    text = TRACE + b"\nDuring handling of the above exception, another exception occurred:\n\n" + TRACE
    kinds, _ = classify(text)

    assert kinds.count(T) == 2
    assert kinds.count(B) == 8
    assert kinds.count(R) == 2


RANK = b"""[rank%d]: Traceback (most recent call last):
[rank%d]:   File "train.py", line 7, in <module>
[rank%d]:     main()
[rank%d]:
[rank%d]: RuntimeError: NCCL communicator was aborted
"""
STAMPED = b"""2026-01-02 15:04:05,001 ERROR worker: Traceback (most recent call last):
2026-01-02 15:04:05,002 ERROR worker:   File "train.py", line 7, in <module>
2026-01-02 15:04:06,003 ERROR worker: ValueError: bad
2026-01-02 15:04:07,004 INFO worker: bye
"""


def _rank(number: int) -> list[bytes]:
    return (RANK % ((number,) * 5)).splitlines(keepends=True)


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        (b"".join(_rank(0)) + b"after\n", "TBBBRN"),
        (b"".join(a + b for a, b in zip(_rank(0), _rank(1), strict=True)), "TTBBBBBBRR"),
        (b"".join(a + b"[rank1]: step 7\n" for a in _rank(0)), "TNBNBNBNRN"),
        (STAMPED, "TBRI"),
        (b"2026-01-02 15:04:05 ERROR root: " + TRACE.partition(b"\n")[2], "TBBBBRN"),
        (b"note: Traceback (most recent call last): is how they begin\nstep 1\nstep 2\n", "TNN"),
        (b"(train pid=7) " + b"(train pid=7) ".join(TRACE.splitlines(keepends=True)), "NTBBBBRN"),
    ],
    ids=["rank", "ranks in turn", "another rank goes on", "times", "a prefix once", "a word of it", "ray"],
)
def test_a_traceback_behind_a_prefix_ends_with_its_exception(text: bytes, levels: str) -> None:
    kinds, still_open = classify(text)

    assert "".join("NDIWETBR"[kind] for kind in kinds) == levels
    assert len(still_open) == (levels == "TNN")


def test_a_traceback_whose_lines_do_not_go_on_is_over_after_a_while() -> None:
    text = b"note: Traceback (most recent call last):\n" + b"step\n" * 300 + b"note: and no traceback\n"
    kinds, still_open = classify(text)

    assert not still_open
    assert kinds[1:].count(N) == 301


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 900), max_size=5))
def test_levels_do_not_depend_on_where_the_file_had_grown_to(cuts: list[int]) -> None:
    import tempfile

    text = (
        b"INFO a\n"
        + TRACE
        + RANK % (0, 0, 0, 0, 0)
        + STAMPED
        + b"ERROR x\nE0501 12:00:00 y\n"
        + TRACE
        + b"WARN z\nlast ERROR"
    )
    expected, _ = classify(text)
    with tempfile.TemporaryDirectory(prefix="fab-") as folder:
        file = Path(folder) / "output.log"
        file.touch()
        index = LineIndex(file)
        levels = Levels(index)
        position = 0
        for cut in [*sorted(cuts), len(text)]:
            with file.open("ab") as stream:
                stream.write(text[position:cut])
            position = max(position, min(cut, len(text)))
            index.update()
            levels.advance()

        assert levels.kinds == expected


def test_errors_are_jumped_to_both_ways(tmp_path: Path) -> None:
    file = tmp_path / "output.log"
    file.write_bytes(b"fine\nERROR one\n" + TRACE + b"fine\nERROR two\nunfinished ERROR")
    index = LineIndex(file)
    index.update()
    levels = Levels(index)
    assert levels.find(-1) is None
    assert levels.advance()
    assert not levels.advance()

    assert [levels.find(at) for at in (-1, 1, 3, 11)] == [1, 3, 11, None]
    assert [levels.find(at, backward=True) for at in (99, 11, 3, 1, 0)] == [11, 3, 1, None, None]
    assert levels.counts()[E] == 2
    file.write_bytes(b"ERROR\n")
    index.update()
    levels.advance()
    assert list(levels.kinds) == [E]


@given(st.text(), st.integers(0, 30))
def test_what_is_fitted_takes_no_more_cells_than_there_are(text: str, cells: int) -> None:
    from workbench.logs.sanitise import plain, sanitise

    shown = plain(fitted(sanitise(text), cells))
    assert width(shown.removesuffix("…")) <= cells
    assert shown == plain(text) or shown.endswith("…")


def test_fitting_keeps_colours_whole_and_ends_them() -> None:
    assert fitted("\x1b[31mabcdef\x1b[0m", 3) == "\x1b[31mabc…\x1b[0m"
    assert fitted("\x1b[31mabc\x1b[0m", 3) == "\x1b[31mabc\x1b[0m"
    assert fitted("日本語", 5) == "日本…"
    assert fitted("日本語", 6) == "日本語"
    assert fitted("e\u0301x", 2) == "e\u0301x"
    assert fitted("abc", 3, cut=True) == "abc…"


def test_the_last_state_of_a_line_is_what_it_shows() -> None:
    assert last_state(b"1%\r2%\r3%") == b"3%"
    assert last_state(b"1%\r2%\r\r") == b"2%"
    assert last_state(b"dos\r") == b"dos"
    assert last_state(b"") == b""
