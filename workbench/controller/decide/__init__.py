"""The controller's decisions: pure functions from values to values, without clock, store or threads.

``reconcile.decide`` is the heart: a :class:`~workbench.controller.decide.model.JobSnapshot` goes in,
actions come out. ``loop`` and ``targets`` import it; clients never do. Imports the store's row types,
``runners.interface`` and no other part of the controller.
"""
