"""The runner ``process``: learners as ordinary processes of a host, each with an agent as its parent.

``runner`` is loaded by name through the registry; ``plan``, ``launch`` and ``observe`` are its steps. The
container runner builds on it. Imports ``runners.shared`` and ``backends.contract``.
"""
