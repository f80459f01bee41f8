"""Simulated lives: the real controller in one thread, on a clock that jumps, in a world that misbehaves by a seed.

``python -m tests.simulation`` runs histories and says what it found; docs/simulation.md explains it. Modules, each may
import those above it: ``chance`` (all that is drawn), ``shrink`` (what became of a history, made short), ``tool`` (the
program), ``tasks`` (threads that take turns), ``disk`` (kills and refused writes), ``targets`` and ``runner`` (what is
out there), ``lines``, ``threads`` and ``groups`` (several hosts that run a job together), ``people``, ``checks`` (what
must hold), ``world`` (one history); ``mutants`` puts defects in. ``host_queue`` has histories of another kind.
"""
