"""What came in frames is cut into parts, byte for byte, wherever the frames and the parts end."""

from __future__ import annotations

import random

import pytest

from backends.frame_client import cut_off


@pytest.mark.parametrize("seed", range(5))
def test_parts_are_what_was_sent_wherever_frames_end(seed: int) -> None:
    draw = random.Random(seed)
    pieces = [draw.randbytes(draw.randint(1, 9)) for _ in range(draw.randint(1, 40))]
    whole, came = b"".join(pieces), b""
    cut = cut_off(pieces)
    next(cut)
    while len(came) < len(whole):
        wanted = min(draw.randint(0, 12), len(whole) - len(came))
        part = cut.send(wanted)
        assert len(part) == wanted
        came += part

    assert came == whole
    assert cut.send(3) == b""
