"""What surrounds the controller: its lock, socket, log, open connections, secrets, and the clients' side.

Clients import ``client`` (submit, ask), ``connect`` (start, wake, stop), ``login_client``,
``client_sessions``, ``prewarm`` and ``secrets``. The rest serves the controller itself. Imports no other
part of the controller, so that a command loads none of the loop.
"""
