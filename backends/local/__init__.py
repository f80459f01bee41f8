"""The backend ``local``: this machine. ``backend`` probes and describes it, ``host`` runs operations on it.

Loaded by name through the registry; others import ``host`` alone. Imports ``backends.contract`` and the
agent's operations.
"""
