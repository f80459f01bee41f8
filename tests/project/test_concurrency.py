"""The controller's threads are made in one place, so that the simulation can make them in another way."""

from __future__ import annotations

import ast
from typing import Final

from tests.project import structure

FOLDERS: Final = ("workbench/controller/loop", "workbench/controller/targets", "workbench/controller/decide")

OF_ITS_OWN: Final = frozenset({"threading", "time", "random", "queue.SimpleQueue"})
"""What these packages take from ``runtime.concurrency`` and ``workbench.clock`` instead."""


def test_the_loop_and_its_targets_make_no_thread_lock_or_pause_by_themselves() -> None:
    found = []
    assert all((structure.ROOT / folder).is_dir() for folder in FOLDERS)
    for name, module in structure.modules(tops=FOLDERS).items():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            else:
                continue
            found += [f"{name}: {imported}" for imported in names if imported in OF_ITS_OWN]

    assert found == []
