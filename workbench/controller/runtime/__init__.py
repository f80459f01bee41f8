"""What surrounds the controller: its lock, socket, log, open connections, secrets, and the clients' side.

Clients import ``client`` (submit, ask), ``connect`` (start, wake, stop), ``login_client``,
``client_sessions``, ``prewarm``, ``secrets``, ``result_store`` (where a job's results are) and
``initial_checkpoint`` (of another job, to begin with). The rest serves the controller itself. Imports no other
part of the controller, so that a command loads none of the loop.
"""
