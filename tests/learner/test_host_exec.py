"""Commands that are run beside a learner find signals as a shell would have them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from workbench.learner.host.exec import CommandSession


@pytest.mark.parametrize("terminal", [True, False])
def test_a_command_ignores_no_signal(tmp_path: Path, terminal: bool) -> None:
    output = bytearray()
    argv = ["grep", "SigIgn", "/proc/self/status"]
    session = CommandSession(argv, {"PATH": os.environ["PATH"]}, str(tmp_path), terminal=terminal)

    session.relay(lambda number, data: output.extend(data), lambda: False)

    assert re.findall(rb"SigIgn:\s*(\w+)", output) == [b"0" * 16]
