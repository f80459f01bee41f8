"""Kills an agent between any two of its operations on files, and checks what is recovered from each such cut.

``operations`` runs inside the agents and counts what they do; ``cases`` runs a learner with agents that are killed at
chosen points, and starts new ones as a host does; ``promises`` says what holds afterwards. ``python -m
tests.learner.crash_points`` lists the points and does any of them again.
"""
