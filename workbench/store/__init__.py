"""The store: one SQLite file and one folder a job; the only bus between all parts of fabric.

Others import ``db.database``, ``db.rows``, ``db.errors`` and modules of ``queries``. ``updates`` is for services and
the controller, ``history`` for the controller and for repairs. Imports
``paths``, ``spec``, ``job`` and ``errors`` of ``workbench``, and ``config``.
"""
