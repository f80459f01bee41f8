"""The controller: the one process that moves jobs on, and what clients use to ask it.

``main`` is the process; ``loop`` handles events and executes actions; ``targets`` has the threads of each
backend; ``decide`` is pure; ``runtime`` has lock, socket and log; ``client`` is the clients' side. Services import
``client`` and parts of ``runtime``. Imports runners, backends and the store.
"""
