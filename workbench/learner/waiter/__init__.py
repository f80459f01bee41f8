"""Starts jobs that wait for a host's GPUs when these come free, with nobody connected: one process a home and user.

Whoever launches a job hands it over, prepared, once its GPUs are busy. The *waiter* holds the lock of each learner and
writes its state (``"phase": "starting", "waiting": true``), so for all who look the learner has an agent. It holds the
job's entry in the host's queue, and when it is the job's turn it takes GPUs and a port, completes ``launch.json`` and
starts the learner's guard, which inherits leases and lock. What waits is in its memory alone, secrets too: a waiter
that dies leaves free locks, and whoever handed over does it again.

``waiter`` is the process and its loop, ``attempts`` what waits, ``start`` the start of an attempt. The commands of the
agent import ``waiter.main``, nobody else anything: clients have ``queue.channel``. It may import ``host`` (what this
machine has), ``queue`` (whose turn it is, and the socket), ``journal`` and ``platform``.
"""
