"""The controller's threads for each target (a backend with a runner): calls, observations, journals, ingestion.

``backend_worker`` is what the loop sees of a target; the other modules are its parts. All report to the
loop with messages. Only ``loop`` and ``main`` import it. Imports ``decide`` (messages), ``runtime``,
runners and backends.
"""
