"""What surrounds the controller: its lock, socket, log, open connections, secrets, and the process of a search.

Services import ``secrets``, ``result_store`` (where a job's results are), ``initial_checkpoint`` (of another job, to
begin with) and ``lock``. The rest serves the controller itself. Imports no other part of the controller.
"""
