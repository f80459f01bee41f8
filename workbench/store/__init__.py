"""The store: one SQLite file and one folder a job; the only bus between all parts of fabric.

Others import ``jobs`` (everything that reads and writes jobs), ``db.database``, ``db.rows``, ``db.errors``,
and modules of ``queries``. ``updates`` and ``history`` belong to the controller and to repairs. Imports
``paths``, ``spec``, ``job`` and ``errors`` of ``workbench``, and ``config``.
"""
