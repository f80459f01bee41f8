"""The TFRecord format of event files: a length, its checksum, the payload, its checksum."""

from __future__ import annotations

import struct
from array import array
from typing import Dict, List, Sequence, Tuple

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
    crc = _crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


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


_MANY = 256
"""Records of one length from which on their checksums are verified column by column."""
_COLUMNS_LIMIT = 300
"""A longer payload would need too many tables."""

_Column = Tuple["array[int]", Tuple[bytes, ...]]
"""What each value of one byte adds to a checksum, whole and as a table for each of the checksum's four bytes."""
_columns: List[_Column] = []
"""By the number of bytes that follow."""
_zeros: Dict[int, int] = {}
"""Checksums of zeros, by their number."""


def are_intact(records: Sequence[bytes]) -> bool:
    """Whether payloads of one length, each with its footer, fit their checksums.

    A CRC is linear: it is the sum (XOR) of what each byte adds by its value and place. So the records are read column
    by column, and all records at once: bytes.translate() and long integers do in C what a loop would do in Python.
    """
    size = len(records[0]) - FOOTER_BYTES
    if len(records) < _MANY or size > _COLUMNS_LIMIT:
        return all(
            masked_crc32c(record[:size]) == int.from_bytes(record[size:], "little") for record in records
        )
    count, stride = len(records), size + FOOTER_BYTES
    joined = b"".join(records)
    constant = _of_zeros(size)
    parts = [0] * FOOTER_BYTES
    for at in range(size):
        column = joined[at::stride]
        whole, tables = _column(size - 1 - at)
        if column.count(column[0]) == count:
            constant ^= whole[column[0]]
            continue
        for part, table in enumerate(tables):
            parts[part] ^= int.from_bytes(column.translate(table), "little")
    checksums = _lanes([part.to_bytes(count, "little") for part in parts])
    found = _lanes([joined[size + part :: stride] for part in range(FOOTER_BYTES)])
    return _masked(checksums, constant, count) == found


def _masked(checksums: int, constant: int, count: int) -> int:
    """Add a constant to checksums in lanes of 64 bits, and mask each as the format does."""
    ones = int.from_bytes(b"\1\0\0\0\0\0\0\0" * count, "little")
    low = ones * 0xFFFFFFFF
    checksums ^= ones * constant
    rotated = checksums >> 15 & ones * 0x1FFFF | checksums << 17 & low
    return rotated + ones * _MASK_DELTA & low


def _lanes(parts: Sequence[bytes]) -> int:
    """Return numbers of four bytes, given byte by byte, in lanes of 64 bits."""
    lanes = bytearray(8 * len(parts[0]))
    for part, data in enumerate(parts):
        lanes[part::8] = data
    return int.from_bytes(lanes, "little")


def _column(following: int) -> _Column:
    while len(_columns) <= following:
        before = _columns[-1][0] if _columns else None
        whole = array("L", _TABLE if before is None else [v >> 8 ^ _TABLE[v & 0xFF] for v in before])
        tables = tuple(bytes(value >> shift & 0xFF for value in whole) for shift in (0, 8, 16, 24))
        _columns.append((whole, tables))
    return _columns[following]


def _of_zeros(size: int) -> int:
    found = _zeros.get(size)
    if found is None:
        found = _zeros[size] = _crc32c(bytes(size))
    return found
