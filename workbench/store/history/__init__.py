"""The files of a job's folder that rows are made from: ``job.json`` and ``events.jsonl``.

``journal.record`` appends an event, ``projection.apply`` brings it into the rows, live and when a database
is rebuilt. ``queries``, ``updates`` and the controller import it. Imports ``db``.
"""
