"""Keeps what a learner prints and reports: output with secrets masked, records of metrics, samples of usage.

``process`` is the guard's side, ``scribe`` runs in the process. It may import ``stores``, ``journal``, ``gpu``,
``collectors`` and ``platform``.
"""
