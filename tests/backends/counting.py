"""A source of an upload that counts what is read of it."""

from __future__ import annotations

import io


class Counting(io.BytesIO):
    """Counts the bytes that are read."""

    count = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.count += len(data)
        return data
