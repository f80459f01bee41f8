"""The last bytes of a journal's files in memory, and files that are made whole from them."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.learner.journal.output import Records
from workbench.learner.journal.tail import FileTail
from workbench.learner.platform import system
from workbench.learner.scribe.pump import Pump


@pytest.mark.parametrize("seed", range(20))
def test_it_has_the_last_bytes_of_what_it_was_given(seed: int) -> None:
    chosen = random.Random(seed)
    tail, content = FileTail(100), b""
    for _ in range(30):
        data = chosen.randbytes(chosen.choice((0, 1, 30, 99, 100, 101, 250)))
        tail.note(len(content), data)
        content += data

        assert tail.end == len(content)
        assert tail.start == max(0, len(content) - 100)
        assert tail.since(tail.start) == content[tail.start :]
        middle = (tail.start + tail.end) // 2
        assert tail.since(middle) == content[middle:]


def test_bytes_that_do_not_follow_begin_it_anew() -> None:
    tail = FileTail(100)
    tail.note(0, b"first")
    tail.note(50, b"later")

    assert (tail.start, tail.end, tail.since(50)) == (50, 55, b"later")


def pump_of(path: Path, tail: FileTail) -> tuple[Pump, int]:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    return Pump(reading, str(path), 0, tail), writing


def refused_as_unknown(*_: object) -> int:
    raise OSError(22, "no splice here")


def without_memory(*_: object) -> int:
    raise OSError(12, "no memory")


def close(pump: Pump, writing: int) -> None:
    os.close(writing)
    pump.close()


@pytest.mark.parametrize("kept", [0, 3, 9])
def test_output_that_was_lost_is_written_again(tmp_path: Path, kept: int) -> None:
    path, tail = tmp_path / "output.log", FileTail(1 << 16)
    pump, writing = pump_of(path, tail)
    for data in (b"one\n", b"two\n"):
        os.write(writing, data)
        assert pump.move() == 4
    close(pump, writing)
    os.truncate(path, min(kept, 8))

    pump, writing = pump_of(path, tail)
    os.write(writing, b"three\n")
    pump.move()

    assert pump.lost_bytes == 0
    assert path.read_bytes() == b"one\ntwo\nthree\n"
    close(pump, writing)


def test_output_that_reads_as_zeros_is_written_again(tmp_path: Path) -> None:
    path, tail = tmp_path / "output.log", FileTail(1 << 16)
    pump, writing = pump_of(path, tail)
    os.write(writing, b"one\ntwo\n")
    pump.move()
    close(pump, writing)
    path.write_bytes(b"one\0\0\0\0\0")

    pump, writing = pump_of(path, tail)

    assert path.read_bytes() == b"one\ntwo\n"
    close(pump, writing)


def test_what_is_not_known_any_more_is_counted_and_keeps_its_place(tmp_path: Path) -> None:
    path, tail = tmp_path / "output.log", FileTail(4)
    pump, writing = pump_of(path, tail)
    os.write(writing, b"0123456789")
    pump.empty()
    close(pump, writing)
    os.truncate(path, 2)

    pump, writing = pump_of(path, tail)

    assert pump.lost_bytes == 4
    assert path.read_bytes() == b"01\0\0\0\x006789"
    close(pump, writing)


@pytest.mark.parametrize("moved", [0, 1, 6, 10])
@pytest.mark.parametrize("printed", [b"", b"three\n", b"two\ntwo\n"])
def test_output_of_which_it_is_not_known_whether_it_was_moved_is_neither_lost_nor_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int, printed: bytes
) -> None:
    """The mount ends in the middle of a write: the server has all of it, and of the pipe a part is taken or nothing."""
    path, tail = tmp_path / "output.log", FileTail(1 << 16)
    pump, writing = pump_of(path, tail)
    os.write(writing, b"one\n")
    pump.move()
    os.write(writing, b"two\nthird\n")

    def is_killed(pipe: int, output: int, _: int) -> int:
        os.read(pipe, moved)
        os.write(output, b"two\nthird\n")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(system, "splice", is_killed)
        with pytest.raises(KeyboardInterrupt):
            pump.move()
    os.write(writing, printed)

    pump = Pump(pump.pipe, str(path), 4, tail)
    pump.empty()

    assert path.read_bytes() == b"one\ntwo\nthird\n" + printed
    close(pump, writing)


def test_output_passes_where_nothing_can_be_spliced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, tail = tmp_path / "output.log", FileTail(100)
    pump, writing = pump_of(path, tail)
    monkeypatch.setattr(system, "splice", refused_as_unknown)
    os.write(writing, b"one\n")
    assert pump.move() == 4
    monkeypatch.setattr(system, "tee", refused_as_unknown)
    os.write(writing, b"two\n")
    assert pump.move() == 4

    assert path.read_bytes() == tail.since(0) == b"one\ntwo\n"
    close(pump, writing)


def test_an_end_is_exact_only_as_long_as_all_bytes_are_noted_before_they_are_written() -> None:
    tail = FileTail(100)
    assert not tail.is_exact
    tail.expect(0, b"one")
    assert tail.is_exact
    tail.take(3)
    assert (tail.is_exact, tail.end) == (True, 3)
    tail.note(3, b"")
    assert (tail.is_exact, tail.end, tail.since(0)) == (False, 3, b"one")
    tail.note(3, b"two")
    assert (tail.is_exact, tail.end) == (False, 6)
    tail.expect(6, b"three")
    assert tail.is_exact


@pytest.mark.parametrize("cut", ["", "killed in it"])
@pytest.mark.parametrize("spliced", [True, False], ids=["spliced", "copied"])
def test_output_that_passed_unseen_is_not_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spliced: bool, cut: str
) -> None:
    """No memory is left for a copy of what waits, which worked before."""

    def moves_and_is_killed(move: Callable[..., int]) -> Callable[..., int]:
        def moved(*args: object) -> int:
            move(*args)
            raise KeyboardInterrupt

        return moved

    path, tail = tmp_path / "output.log", FileTail(1 << 16)
    pump, writing = pump_of(path, tail)
    os.write(writing, b"one\n")
    pump.move()
    with monkeypatch.context() as patched:
        patched.setattr(system, "tee", without_memory)
        if not spliced:
            patched.setattr(system, "splice", refused_as_unknown)
        os.write(writing, b"two\n")
        if cut:
            owner, name = (system, "splice") if spliced else (os, "write")
            patched.setattr(owner, name, moves_and_is_killed(getattr(owner, name)))
            with pytest.raises(KeyboardInterrupt):
                pump.move()
        else:
            assert pump.move() == 4

    pump = Pump(pump.pipe, str(path), 0, tail)
    os.write(writing, b"three\n")
    pump.move()

    assert path.read_bytes() == b"one\ntwo\nthree\n"
    assert tail.is_exact
    close(pump, writing)


def test_output_that_passed_unseen_and_was_lost_is_counted_and_keeps_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, tail = tmp_path / "output.log", FileTail(1 << 16)
    pump, writing = pump_of(path, tail)
    with monkeypatch.context() as patched:
        patched.setattr(system, "tee", without_memory)
        for data in (b"one\n", b"two\n"):
            os.write(writing, data)
            pump.move()
    os.truncate(path, 4)

    pump = Pump(pump.pipe, str(path), 0, tail)
    os.write(writing, b"three\n")
    pump.move()

    assert pump.lost_bytes == 4
    assert path.read_bytes() == b"one\n\0\0\0\0three\n"
    close(pump, writing)


def test_records_that_were_lost_are_written_again(tmp_path: Path) -> None:
    path, tail = tmp_path / "records.jsonl", FileTail(1 << 16)
    records = Records(str(path), {"format": 1}, tail)
    records.append([{"kind": "a"}, {"kind": "b"}])
    records.close()
    whole = path.read_bytes()
    os.truncate(path, len(whole) - 5)  # in the middle of a line

    records = Records(str(path), {"format": 1}, tail)

    assert path.read_bytes() == whole
    assert records.seq == 2
    records.append([{"kind": "c"}])
    assert path.read_bytes().count(b'"seq":3') == 1
    records.close()
