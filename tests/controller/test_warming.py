from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from workbench.controller.runtime.prewarm import MODULES, warm_up
assert "runners.process" not in sys.modules
warm_up().join()
print([module for module in MODULES if module not in sys.modules])
"""


def test_all_that_is_loaded_beforehand_is_there_to_be_loaded() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)

    assert ran.stdout == "[]\n", ran.stderr
