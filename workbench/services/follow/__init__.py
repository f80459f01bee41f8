"""Use cases that wait: follow a job as events, read its output and its metric points as they come, wait for a state.

May be imported by ``cli``, ``api``, ``screens`` and other services: ``follower``, ``events``, ``log_reader``,
``metric_points``, ``wait``, ``keeper`` and ``job_text``, which describes a job's state for all of them.
May import: ``services.open_store``, and what lies below the services.
"""
