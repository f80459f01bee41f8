"""How this machine, an SSH host or a cluster is reached, and what is there. One package a backend.

Others import ``backends.interface`` (the public path), ``backends.contract`` and ``backends.registry``; a
single backend only where something is about that one alone. Imports no runner, no controller, no service
and nothing that draws.
"""
