from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from workbench.controller.runtime.prewarm import PRELOADED_MODULES, preload_modules
assert "runners.process" not in sys.modules
preload_modules().join()
print([module for module in PRELOADED_MODULES if module not in sys.modules])
"""


def test_all_that_is_loaded_beforehand_is_there_to_be_loaded() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)

    assert ran.stdout == "[]\n", ran.stderr
