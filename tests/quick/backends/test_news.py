"""News of journals are cut out of frames byte for byte, wherever those end; logs are passed on as they come."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, cast

import pytest

from backends.rpc.client import PendingCall
from backends.rpc.streams import read_journal_feed
from workbench.errors import BackendError
from workbench.learner.platform import frames
from workbench.learner.platform.frames import Frame

NAMES = ("output", "index", "setup", "setup_index", "records", "state")


class Answer:
    """A call that is answered with these frames, by an agent of today or, with the sizes last, of long ago."""

    def __init__(
        self, sizes: Any, pieces: list[bytes], last: int = frames.RESULT, *, sizes_last: bool = False
    ) -> None:
        about = json.dumps(sizes).encode()
        data = [Frame(1, frames.DATA, piece) for piece in pieces]
        self._frames: Iterator[Frame] = iter(
            [*data, Frame(1, last, about)]
            if sizes_last
            else [Frame(1, frames.HELLO, about), *data, Frame(1, last, b"null")]
        )

    def next(self) -> Frame:
        return next(self._frames)


def drawn(draw: random.Random) -> tuple[dict[str, dict[str, bytes]], dict[str, Any], list[bytes]]:
    """Make news, their sizes, and their bytes in frames that end anywhere."""
    news = {
        folder: {name: draw.randbytes(draw.randint(0, 50)) for name in NAMES if draw.random() < 0.7}
        for folder in ("/a", "/b", "/c")
    }
    whole = b"".join(data for parts in news.values() for data in parts.values())
    sizes = {
        folder: {name: [len(data), 7, 7 + len(data)] for name, data in parts.items()}
        for folder, parts in news.items()
    }
    pieces = []
    while whole:
        size = draw.randint(1, 30)
        pieces.append(whole[:size])
        whole = whole[size:]
    return news, sizes, pieces


@pytest.mark.parametrize("sizes_last", [False, True], ids=["sizes first", "sizes last"])
@pytest.mark.parametrize("seed", range(5))
def test_parts_are_what_was_sent_wherever_frames_end(seed: int, sizes_last: bool) -> None:
    news, sizes, pieces = drawn(random.Random(seed))
    came = read_journal_feed(cast(PendingCall, Answer(sizes, pieces, sizes_last=sizes_last)), None)

    for folder, parts in news.items():
        for name, data in parts.items():
            assert (came[folder][name].data, came[folder][name].offset) == (data, 7)
            assert came[folder][name].end == 7 + len(data)


@pytest.mark.parametrize("sizes_last", [False, True], ids=["sizes first", "sizes last"])
@pytest.mark.parametrize("seed", range(5))
def test_logs_are_given_early_and_the_rest_of_them_begins_where_that_ended(
    seed: int, sizes_last: bool
) -> None:
    news, sizes, pieces = drawn(random.Random(seed))
    early: dict[tuple[str, str], bytes] = {}

    def take(folder: str, name: str, data: memoryview, offset: int) -> None:
        before = early.setdefault((folder, name), b"")
        assert offset == 7 + len(before)
        early[folder, name] = before + data

    came = read_journal_feed(cast(PendingCall, Answer(sizes, pieces, sizes_last=sizes_last)), take)

    for folder, parts in news.items():
        for name, data in parts.items():
            if name in ("output", "setup"):
                assert early.get((folder, name), b"") == data
                assert (came[folder][name].data, came[folder][name].offset) == (b"", 7 + len(data))
            else:
                assert came[folder][name].data == data


def test_an_answer_that_ends_too_soon_is_an_error() -> None:
    with pytest.raises(BackendError, match="incomplete answer"):
        read_journal_feed(cast(PendingCall, Answer({"/a": {"output": [9, 0, 9]}}, [b"four"])), None)
    with pytest.raises(BackendError, match="invalid answer"):
        read_journal_feed(cast(PendingCall, Answer({}, [], last=frames.CREDIT)), None)
    with pytest.raises(BackendError, match="incomplete answer"):
        read_journal_feed(
            cast(PendingCall, Answer({"/a": {"output": [9, 0, 9]}}, [b"four"], sizes_last=True)), None
        )
    with pytest.raises(BackendError, match="invalid answer"):
        read_journal_feed(cast(PendingCall, Answer({}, [], last=frames.CREDIT, sizes_last=True)), None)
