"""The controller's log: whole lines with their time, never too long, never in the way."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from workbench.controller.runtime.log import ControllerLog


def test_lines_carry_time_and_process(tmp_path: Path) -> None:
    log = ControllerLog(tmp_path / "controller.log")
    log.say("hello")
    log.close()

    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \[\d+\] hello\n", (tmp_path / "controller.log").read_text()
    )


def test_a_line_that_comes_after_its_end_goes_into_no_other_file(tmp_path: Path) -> None:
    log = ControllerLog(tmp_path / "controller.log")
    log.close()
    with (tmp_path / "home.json").open("wb"):  # it gets the number that the log had
        log.say("too late")

    assert [(tmp_path / name).read_bytes() for name in ("controller.log", "home.json")] == [b"", b""]


def test_it_does_not_grow_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.controller.runtime.log.ROTATE_BYTES", 1000)
    log = ControllerLog(tmp_path / "controller.log")
    for number in range(100):
        log.say(f"line {number}")
    log.close()

    sizes = [file.stat().st_size for file in sorted(tmp_path.iterdir())]
    assert len(sizes) == 2 and max(sizes) <= 1000
    assert "line 99" in (tmp_path / "controller.log").read_text()


def test_a_folder_that_is_gone_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.controller.runtime.log.ROTATE_BYTES", 100)
    (tmp_path / "home").mkdir()
    log = ControllerLog(tmp_path / "home" / "controller.log")
    shutil.rmtree(tmp_path / "home")
    for _ in range(10):
        log.say("is anybody there?")
    log.close()

    assert not (tmp_path / "home").exists()  # nor is the folder made anew


def test_a_defect_is_logged_with_its_place_and_without_values(tmp_path: Path) -> None:
    log = ControllerLog(tmp_path / "controller.log")
    secret = "hunter2"
    try:
        {}[len(secret)]  # type: ignore[index] # raises on purpose
    except KeyError as error:
        log.bug("requests", error)
    log.close()

    text = (tmp_path / "controller.log").read_text()
    assert "defect in requests: KeyError: 7 (test_log.py:" in text
    assert "hunter2" not in text
