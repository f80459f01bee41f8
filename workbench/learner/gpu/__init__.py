"""Reads the GPUs of a host: by NVIDIA's library with ctypes, else by ``nvidia-smi``. Nothing is installed for it.

``nvml.read_gpus`` serves the host's inventory, ``nvml.open_nvml`` the samples of what a learner uses. It imports
``platform`` alone.
"""
