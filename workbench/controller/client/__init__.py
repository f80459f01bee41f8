"""The clients' side of the controller: what is written to the store for it, and how it is reached, started and ended.

``submission`` writes new jobs, ``requests`` what is asked of them; ``connect`` wakes, starts, asks and ends the
controller, ``hang`` notices one that does not answer; ``login`` and ``sessions`` use what it has logged in to.
Services import this package; command line, screens and Python API go through services. Imports ``runtime`` and no
other part of the controller, so that a command loads none of the loop.
"""
