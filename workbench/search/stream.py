"""The stream of random numbers: MT19937 seeded and read as ``numpy.random.RandomState`` does, without numpy."""

from __future__ import annotations

import random
from typing import Final

_WORDS: Final = 624
_LIMIT_32: Final = 0xFFFFFFFF
SEED_LIMIT: Final = 2**31
"""Seeds of searches and trials are below it."""


class RandomStream:
    """One stream; two with the same seed give the same numbers, on every machine and version of Python."""

    def __init__(self, seed: int) -> None:
        key = []
        for position in range(_WORDS):
            key.append(seed)
            seed = (1812433253 * (seed ^ (seed >> 30)) + position + 1) & _LIMIT_32
        self._random = random.Random()
        self._random.setstate((3, (*key, _WORDS), None))

    def bits(self) -> int:
        """Return 32 bits."""
        return self._random.getrandbits(32)

    def up_to(self, limit: int) -> int:
        """Return a whole number from 0 to ``limit``, both included; 0 draws nothing.

        Bits above the limit are masked, and what is still too large is drawn again.
        """
        if limit == 0:
            return 0
        mask = (1 << limit.bit_length()) - 1
        while True:
            drawn = self.bits() if limit <= _LIMIT_32 else self.bits() << 32 | self.bits()
            if (value := drawn & mask) <= limit:
                return value

    def whole(self, low: int, high: int) -> int:
        """Return a whole number from ``low`` to ``high``, without ``high`` itself."""
        return low + self.up_to(high - low - 1)

    def unit(self) -> float:
        """Return a number from 0 to 1, without 1."""
        return self._random.random()

    def uniform(self, low: float, high: float) -> float:
        """Return a number from ``low`` to ``high``, without ``high``."""
        return low + (high - low) * self.unit()

    def take_bytes(self, count: int) -> bytes:
        """Return bytes: those of each word from its lowest on; the rest of the last word is lost."""
        words = b"".join(self.bits().to_bytes(4, "little") for _ in range(-(-count // 4)))
        return words[:count]

    def trial_id(self) -> str:
        """Return a new id: a UUID of version 4."""
        from uuid import UUID

        drawn = bytearray(self.take_bytes(16))
        drawn[6] = drawn[6] & 0x0F | 0x40
        drawn[8] = drawn[8] & 0x3F | 0x80
        return str(UUID(bytes=bytes(drawn)))

    def trial_seed(self) -> int:
        """Return a new trial's seed."""
        return self.whole(0, SEED_LIMIT)
