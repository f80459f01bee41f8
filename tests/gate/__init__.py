"""The gate: the README's test command, what fails in it once more alone, and a verdict that is recorded.

``__main__`` runs it and imports nothing but the standard library, ``record`` is the pytest plugin that writes down what
came of each test, ``machine`` reads what else uses this machine and what a run leaves behind, ``leftovers`` removes
what a killed run has left. ``workers`` collects the tests once for all workers; ``order`` says which they take first.
``hunt`` runs unsteady tests again and again, ``affected`` those that a change can reach.
"""
