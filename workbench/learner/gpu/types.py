"""What a reader of GPUs finds on a machine."""

from __future__ import annotations

from typing import Any, Dict, List

Gpu = Dict[str, Any]
"""A slot as ``backends.interface.Slot`` has it, with its compute ``processes`` (pid, memory_bytes) where known."""


class Gpus:
    """The slots of a machine, and the driver's version or why there are none."""

    def __init__(self, slots: List[Gpu], driver: str) -> None:
        self.slots = slots
        self.driver = driver
