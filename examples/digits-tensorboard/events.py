"""A writer of TensorBoard event files, with nothing but the standard library.

The format: records of a length, its checksum, the data and its checksum. The data is a protocol buffer
``Event`` with wall time (1), step (2), file version (3) or a summary (5) whose values (1) have a tag (1) and a simple
value (2).
"""

import os
import struct
import time

_TABLE = []
for _byte in range(256):
    for _ in range(8):
        _byte = _byte >> 1 ^ (0x82F63B78 if _byte & 1 else 0)
    _TABLE.append(_byte)


def _checksum(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(number, data):
    return _varint(number << 3 | 2) + _varint(len(data)) + data


class Writer:
    """Appends scalars to one event file in a folder; TensorBoard shows the folder's name as the run."""

    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        self._file = open(os.path.join(folder, f"events.out.tfevents.{int(time.time())}.{os.getpid()}"), "ab")
        self._write(_field(3, b"brain.Event:2"))

    def scalar(self, tag, step, value):
        """Write one value of one tag."""
        entry = _field(1, tag.encode()) + b"\x15" + struct.pack("<f", value)
        self._write(b"\x10" + _varint(step) + _field(5, _field(1, entry)))

    def _write(self, fields):
        data = b"\x09" + struct.pack("<d", time.time()) + fields
        length = struct.pack("<Q", len(data))
        self._file.write(length + _checksum(length) + data + _checksum(data))
        self._file.flush()
