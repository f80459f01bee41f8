"""The TFRecord format of event files: a length, its checksum, the payload, its checksum."""

from __future__ import annotations

import struct
from typing import Dict, List

HEADER_BYTES = 12
FOOTER_BYTES = 4

_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8


def _table() -> List[int]:
    table = []
    for byte in range(256):
        value = byte
        for _bit in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()


def masked_crc32c(data: bytes) -> int:
    """Return the checksum of TFRecord files: CRC-32C, rotated and with a constant added."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


length_checksums: Dict[int, int] = {}
"""Checksums of lengths: a file has few different ones."""


def length_checksum(length: int) -> int:
    """Return the checksum of a length, and remember it."""
    found = length_checksums.get(length)
    if found is None:
        if len(length_checksums) > 10_000:
            length_checksums.clear()
        found = length_checksums[length] = masked_crc32c(struct.pack("<Q", length))
    return found
