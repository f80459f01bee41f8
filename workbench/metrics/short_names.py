"""Names of metrics as they are shown: without the folders that all of them share.

TensorBoard and others put the folder of a run before each name (``logs/run1/train/loss``), which tells nothing apart
and leaves no room for what does. What is left is still a name of the metric: it is found by its last parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from workbench.metric_names import HELD_OUT

_MEANING: Final = HELD_OUT | {"train", "training"}
"""Parts that say what was measured on; they stay, even where all metrics share one."""


def shared_folder(names: Iterable[str]) -> str:
    """Return what all of some names begin with and may be shown without, such as ``logs/run1/``; empty for nothing.

    Names without a folder have nothing to share, and stay as they are; of one name alone nothing is left out.
    """
    known = set(names)
    split = [name.split("/") for name in known if "/" in name]
    if len(split) < 2:
        return ""
    shared = 0
    for parts in zip(*(parts[:-1] for parts in split), strict=False):
        if len(set(parts)) > 1 or parts[0].lower() in _MEANING:
            break
        shared += 1
    folder = "".join(f"{part}/" for part in split[0][:shared])
    is_unique = len({name.removeprefix(folder) for name in known}) == len(known)
    return folder if is_unique else ""
