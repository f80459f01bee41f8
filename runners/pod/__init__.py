"""The runner ``pod``: a job as an Indexed Job of a cluster, every learner a pod with its agent and a side-car.

``runner`` is loaded by name through the registry; ``plan`` and ``template`` say what will be created,
``launch`` creates it, ``watch``, ``observe`` and ``status`` follow it, ``stop`` and ``results`` end it.
Others import ``data_cache`` alone. Imports ``runners.shared`` and ``backends``.
"""
