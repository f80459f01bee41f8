"""The backend ``multinode``: several hosts that run the learners of one job together, ``box1+box2``.

``backend`` opens and describes its members. Loaded by name through the registry, which it uses itself for its
members. Imports ``backends.contract`` and ``backends.registry``.
"""
