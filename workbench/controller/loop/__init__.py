"""The controller's one thread that decides: events go in, actions go out, nothing here waits for a backend.

``loop`` has the mailbox, ``event_handler`` and ``request_handler`` take in what happened, ``queue``
schedules, ``actions`` executes, ``job_state`` is the memory of one job. Only ``main`` imports it, and
``removal`` has one client. Imports all of the controller below ``main``.
"""
