from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.waiting import until
from workbench.learner.journal.output import ENTRY_BYTES
from workbench.learner.journal.tail import FileTail
from workbench.learner.scribe import publisher as publishing
from workbench.learner.scribe.masking import Mask
from workbench.learner.scribe.publisher import PUBLISH_SECONDS, Publisher


def publisher(folder: Path, *secrets: str, tail: FileTail | None = None) -> Publisher:
    return Publisher(str(folder / "output.log"), str(folder / "output.idx"), Mask(secrets), tail)


def printed(folder: Path, data: bytes) -> None:
    with (folder / "output.log").open("ab") as file:
        file.write(data)


def published(folder: Path, one: Publisher) -> bytes:
    return (folder / "output.log").read_bytes()[: one.end]


def test_the_first_line_is_published_at_once_and_the_next_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        publishing, "PUBLISH_SECONDS", 3600.0
    )  # a busy machine needs longer than the real pause here
    one = publisher(tmp_path)
    printed(tmp_path, b"first\n")
    assert one.publish()
    printed(tmp_path, b"second\n")

    assert one.publish() is False
    assert 3000 < (one.due_seconds() or 0) <= 3600
    monkeypatch.undo()
    assert (one.due_seconds() or 0) <= PUBLISH_SECONDS
    until(one.publish)

    assert published(tmp_path, one) == b"first\nsecond\n"
    assert one.index.count == 2
    assert one.due_seconds() is None


def test_much_output_has_an_entry_every_64_kib_with_its_newlines(tmp_path: Path) -> None:
    data = b"".join(b"%d\n" % n for n in range(200_000))
    printed(tmp_path, data)
    one = publisher(tmp_path)

    one.publish()

    entries = [one.index.entry(n) for n in range(one.index.count)]
    ends = [0, *(entry.end for entry in entries)]
    assert ends[-1] == len(data)
    assert all(after - before <= ENTRY_BYTES for before, after in pairwise(ends))
    assert len(entries) == -(-len(data) // ENTRY_BYTES)
    assert [entry.newlines for entry in entries] == [data.count(b"\n", 0, entry.end) for entry in entries]


def test_a_new_publisher_goes_on_where_the_last_one_was_killed(tmp_path: Path) -> None:
    printed(tmp_path, b"one\n")
    publisher(tmp_path).publish()
    printed(tmp_path, b"two secret-value\n")

    again = publisher(tmp_path, "secret-value")
    again.publish()

    assert published(tmp_path, again) == b"one\ntwo ************\n"
    assert (again.index.count, again.index.last.newlines) == (2, 2)


def test_a_secret_larger_than_a_chunk_is_found(tmp_path: Path) -> None:
    secret = "ab" * 200_000
    printed(tmp_path, b"x" + secret.encode() + b"y")
    one = publisher(tmp_path, secret)

    one.publish(final=True)

    assert published(tmp_path, one) == b"x" + b"*" * 400_000 + b"y"


def test_what_could_become_a_secret_is_published_at_the_end(tmp_path: Path) -> None:
    one = publisher(tmp_path, "secret-value")
    printed(tmp_path, b"a secret-")
    one.publish()
    assert published(tmp_path, one) == b"a "

    one.publish(final=True)

    assert published(tmp_path, one) == b"a secret-"


@given(st.lists(st.binary(max_size=300).map(lambda data: data + b"\n"), max_size=12), st.data())
def test_whatever_is_printed_and_however_often_it_is_restarted_all_is_published(
    pieces: list[bytes], data: st.DataObject
) -> None:
    folder = Path(os.environ["HOME"])
    for name in ("output.log", "output.idx"):
        (folder / name).unlink(missing_ok=True)
    one = publisher(folder)

    for piece in pieces:
        printed(folder, piece)
        one.publish(final=data.draw(st.booleans()))
        if data.draw(st.booleans()):
            one.close()
            one = publisher(folder)
    one.publish(final=True)

    assert published(folder, one) == b"".join(pieces)
    assert one.index.last.newlines == b"".join(pieces).count(b"\n")
    one.close()


SECRET = b"correct-horse-battery"


@pytest.mark.parametrize("before", range(1, len(SECRET)))
def test_a_secret_on_two_pages_of_which_one_was_overwritten_as_its_writer_was_killed_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    printed(tmp_path, b"." * (4096 - before) + SECRET + b" and a second " + SECRET + b"\n")
    write = os.pwrite

    def is_killed(descriptor: int, data: bytes, offset: int) -> int:
        write(descriptor, data[: 4096 - offset], offset)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        one = publisher(tmp_path, SECRET.decode())
        patched.setattr(os, "pwrite", is_killed)
        with pytest.raises(KeyboardInterrupt):
            one.publish()
    one.close()

    one = publisher(tmp_path, SECRET.decode())
    one.publish()

    stars = b"*" * len(SECRET)
    assert published(tmp_path, one) == b"." * (4096 - before) + stars + b" and a second " + stars + b"\n"


def test_a_second_secret_that_begins_in_a_cut_one_is_overwritten_with_it(tmp_path: Path) -> None:
    printed(tmp_path, b"." * 4084 + b"*" * 12 + b"0123456789abcdefgh" + b"\n")
    one = publisher(tmp_path, "first secret0123456789", "456789abcdefgh")

    one.publish()

    assert published(tmp_path, one) == b"." * 4084 + b"*" * 30 + b"\n"


def test_a_write_that_a_disk_cuts_short_overwrites_all_of_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed(tmp_path, b"it is " + SECRET + b"\n")
    one = publisher(tmp_path, SECRET.decode())
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, offset: write(descriptor, data[:5], offset))

    one.publish()

    assert published(tmp_path, one) == b"it is " + b"*" * len(SECRET) + b"\n"


def test_stars_that_were_printed_at_the_end_of_a_page_are_no_secret(tmp_path: Path) -> None:
    data = b"*" * 4096 + b"\n" + b"*" * 4095 + b"other\n"
    printed(tmp_path, data)
    one = publisher(tmp_path, SECRET.decode() + "\n")

    one.publish()

    assert published(tmp_path, one) == data


def tail_of(*parts: bytes) -> FileTail:
    """Return the tail of a file that was given these parts."""
    tail, offset = FileTail(1 << 16), 0
    for part in parts:
        tail.expect(offset, part)
        tail.take(len(part))
        offset += len(part)
    return tail


def test_output_is_read_from_its_tail_where_the_file_shows_zeros_for_a_moment(tmp_path: Path) -> None:
    """A page that sshfs was asked for again, by another reader, before it had the last write."""
    printed(tmp_path, b"one\n" + bytes(len(b"two hush-hush-42\n")))
    tail = tail_of(b"one\n", b"two hush-hush-42\n")
    one = publisher(tmp_path, "hush-hush-42", tail=tail)

    one.publish(final=True)

    entry = one.index.entry(one.index.count - 1)
    assert (entry.end, entry.newlines) == (21, 2)
    assert one.read(4, 100) == tail.since(4) == b"two " + b"*" * 12 + b"\n"
    assert published(tmp_path, one)[8:20] == b"*" * 12


def test_what_the_file_has_and_its_tail_does_not_is_not_published(tmp_path: Path) -> None:
    """A server may have got a write that failed here: its bytes are written again, and counted then."""
    printed(tmp_path, b"one\ntwo\n")
    tail = tail_of(b"one\n")
    one = publisher(tmp_path, tail=tail)
    one.publish(final=True)
    assert one.end == 4

    tail.expect(4, b"two\n")
    assert one.publish(final=True) is False
    tail.take(4)
    one.publish(final=True)

    assert one.end == 8


def test_output_that_its_tail_has_no_more_is_read_from_the_file(tmp_path: Path) -> None:
    lines = [b"secret-%06d\n" % n for n in range(1000)]
    tail, offset = FileTail(100), 0
    for line in lines:
        tail.expect(offset, line)
        tail.take(len(line))
        offset += len(line)
    printed(tmp_path, b"".join(lines))
    one = publisher(tmp_path, "secret-000001", "secret-000999", tail=tail)

    one.publish(final=True)

    assert (one.end, one.index.last.newlines) == (14000, 1000)
    assert (one.read(14, 13), one.read(13986, 13)) == (b"*" * 13, b"*" * 13)
    assert tail.since(13986) == b"*" * 13 + b"\n"
