"""The conformance suite for runners: one test or more for each promise of ``runners.interface``.

The tests of a runner subclass :class:`RunnerContract` and open its backend::

    class TestMyRunner(RunnerContract):
        runner_class = MyRunner

        @pytest.fixture
        def connection(self) -> Iterator[Host]:
            host = LocalHost()
            yield host
            host.close()

The commands of the tests are POSIX shell, and learners are observed only through the runner, so the suite also
runs with containers and pods.
"""

from __future__ import annotations

import pytest

# Before the imports, so that a failed assertion shows both values.
pytest.register_assert_rewrite("runners.conformance.journal_tests", "runners.conformance.launch_tests")

from runners.conformance.journal_tests import JournalContract  # noqa: E402 - after that
from runners.conformance.launch_tests import LaunchContract  # noqa: E402 - after that


class RunnerContract(LaunchContract, JournalContract):
    """All tests. Override ``connection``; ``left_out`` names tests that the runner cannot pass, with the reason."""
