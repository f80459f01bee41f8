"""A test suite for runners: it tests what ``runners.interface`` promises. Subclass :class:`RunnerContract`."""

from runners.conformance.suite import RunnerContract as RunnerContract
