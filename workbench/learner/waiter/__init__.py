"""Starts jobs that wait at a host when their turn comes, with nobody connected: one process a home and user.

Whoever launches a job hands it over, prepared, where it waits: for GPUs, for CPUs, or behind gates. The *waiter* holds
the lock of each learner and writes its state (``"phase": "starting", "waiting": true``), so for all who look the
learner has an agent. It holds the job's entry in the host's queue, and when it is the job's turn it takes GPUs and a
port, completes ``launch.json`` and starts the learner's guard, which inherits leases and lock. What waits is in its
memory alone, secrets too: a waiter that dies leaves free locks, and whoever handed over does it again. Where the person
wants that, what waits is kept in files, too, and goes on waiting after a restart of the machine (``kept_tickets``).

``waiter`` is the process and its loop, ``attempts`` what waits, ``gates`` what holds an attempt back before it waits
for GPUs and CPUs, ``start`` the start of an attempt. The commands of the agent import ``waiter.main``, nobody else
anything: clients have ``queue.channel``. It may import ``host`` (what this machine has), ``queue`` (whose turn it is,
and the socket), ``journal`` and ``platform``.
"""
