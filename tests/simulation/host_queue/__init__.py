"""Simulated queues of a host: the real entries, leases, locks and waiters of several homes, in one thread, by a seed.

``python -m tests.simulation.host_queue`` lives histories; docs/simulation.md explains it. Modules, each may
import those above it: ``kernel`` (processes, open files, sockets, the clock), ``agents`` (learners), ``homes`` (jobs,
clients), ``checks`` (what must hold), ``world`` (one history, what goes wrong in it); ``mutants`` puts defects in.
"""
