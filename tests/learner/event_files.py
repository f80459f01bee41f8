"""Writes TensorFlow event files, a few bytes at a time: what the tests of the reader need of the format."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from workbench.learner.collectors.tensorboard.tfrecord import masked_crc32c


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def number_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def frame(payload: bytes) -> bytes:
    length = struct.pack("<Q", len(payload))
    return b"".join(
        (
            length,
            struct.pack("<I", masked_crc32c(length)),
            payload,
            struct.pack("<I", masked_crc32c(payload)),
        )
    )


def event(wall_time: float, step: int, *values: bytes) -> bytes:
    """One framed event; protocol buffers leave out a step of 0."""
    head = b"\x09" + struct.pack("<d", wall_time) + (number_field(2, step) if step else b"")
    return frame(head + field(5, b"".join(field(1, value) for value in values)))


def version(wall_time: float = 1.7e9) -> bytes:
    """What every event file begins with."""
    return frame(b"\x09" + struct.pack("<d", wall_time) + field(3, b"brain.Event:2"))


def simple(tag: str, value: float) -> bytes:
    """A scalar as TF1 and PyTorch write it."""
    return field(1, tag.encode()) + b"\x15" + struct.pack("<f", value)


def tensor(tag: str, body: bytes, *, plugin: str = "scalars") -> bytes:
    """A tensor as TF2 and Keras write it, with its plug-in behind it."""
    metadata = field(9, field(1, field(1, plugin.encode()))) if plugin else b""
    return field(1, tag.encode()) + field(8, body) + metadata


FLOAT, DOUBLE, INT32, STRING, INT64, BFLOAT16, HALF = 1, 2, 3, 7, 9, 14, 19

CONTENT_LAYOUTS = {FLOAT: "<f", DOUBLE: "<d", INT32: "<i", INT64: "<q", HALF: "<e"}


def content(dtype: int, *values: float, shape: bytes = b"") -> bytes:
    """The tensor's elements in ``tensor_content``."""
    whole = tuple(int(value) for value in values) if dtype in (INT32, INT64) else values
    data = b"".join(struct.pack(CONTENT_LAYOUTS[dtype], value) for value in whole)
    return number_field(1, dtype) + field(2, shape) + field(4, data)


def float_val(value: float) -> bytes:
    """One float in ``float_val``, packed."""
    return number_field(1, FLOAT) + field(2, b"") + field(5, struct.pack("<f", value))


def as_float32(value: float) -> float:
    """What is left of a number in four bytes."""
    kept: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return kept


def scalars(points: Mapping[int, Mapping[str, float]], wall_time: float = 1.7e9) -> bytes:
    """Events of one scalar each, step by step."""
    return b"".join(
        event(wall_time + step, step, simple(tag, value))
        for step, row in points.items()
        for tag, value in row.items()
    )
