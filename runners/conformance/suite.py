"""The promises of ``runners.interface`` as tests: every runner, ours or yours, is held to the same ones.

A runner's tests subclass :class:`RunnerContract` and open its backend::

    class TestMyRunner(RunnerContract):
        runner_class = MyRunner

        @pytest.fixture
        def connection(self) -> Iterator[Host]:
            host = LocalHost()
            yield host
            host.close()

Learners are told what to do in POSIX shell and are seen only through the runner, so the suite fits
containers and pods.
"""

from __future__ import annotations

import pytest

# First, so that a failed test shows what it compared.
pytest.register_assert_rewrite("runners.conformance.journal_tests", "runners.conformance.launch_tests")

from runners.conformance.journal_tests import JournalContract  # noqa: E402 - after that
from runners.conformance.launch_tests import LaunchContract  # noqa: E402 - after that


class RunnerContract(LaunchContract, JournalContract):
    """What every runner promises. Override ``connection``; name in ``left_out`` what cannot be promised, and why."""
