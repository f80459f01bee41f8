"""The promises of ``runners.interface`` as tests: a runner's tests subclass :class:`RunnerContract`."""

from runners.conformance.suite import RunnerContract as RunnerContract
