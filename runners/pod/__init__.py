"""The runner ``pod``: a job as an Indexed Job of a cluster, every learner a pod with its agent and a side-car.

``runner`` is loaded by name through the registry; ``plan`` and ``template`` describe the objects,
``launch`` creates them, ``watch``, ``observe`` and ``status`` follow them, ``stop`` and ``results`` end the job.
Others import ``data_cache`` alone. Imports ``runners.shared`` and ``backends``.
"""
