"""The backend ``ssh``: a host that ``~/.ssh/config`` describes, reached with paramiko or with the system's ``ssh``.

``backend`` is loaded by name through the registry; ``config``, ``auth``, ``known_hosts`` and ``connection``
log in, ``bootstrap`` installs the agent, ``host`` speaks frames to it. ``sh_*`` serve hosts without Python.
Others import ``shared_sessions`` and ``config`` alone. Imports ``backends.contract`` and ``backends.rpc``.
"""
