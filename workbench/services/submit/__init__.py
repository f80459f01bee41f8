"""Use cases that start jobs: from the options of a client to a row in the store.

* ``options``: :class:`RunOptions`, what a client asks for; ``batch``: the jobs that come of it (one, a chain, a sweep,
  an array).
* ``prepare``: one job, ready to be submitted; ``preview``: what its runner would send; ``submit``: writes it.
* ``start``: all of that at once, in the background.
* ``rerun``, ``resume``, ``adoption``: a job again, a job continued, a job of another machine.
* ``data_options``, ``store_aliases``, ``store_checks``, ``dependencies``, ``credentials``,
  ``secrets_refresh``, ``submit_environment``, ``chains``, ``sweeps``: the parts of these.

Command line, screens and the Python API import the modules of the first three lines. The package imports
``services.backends`` and ``services.follow``, the controller's client and what lies below. It never prints and asks
nobody: warnings and notes are fields of the values that it returns.
"""
