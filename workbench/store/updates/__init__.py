"""Changing the store: jobs' states and attempts, deletion, and rebuilding a damaged database from the jobs' folders.

Each change goes through the job's history first. Services and the controller import it, clients do not. Imports
``queries``, ``history`` and ``db``.
"""
