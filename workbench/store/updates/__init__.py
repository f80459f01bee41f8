"""Changing the store: jobs' states and attempts, deletion, and rebuilding a damaged database from the jobs' folders.

Each change goes through the job's history first. Imported through ``workbench.store.jobs``, and ``rebuild``
by the repair service. Imports ``queries``, ``history`` and ``db``.
"""
