"""Starts the processes of one trial, by Determined's names: ``python3 -m determined.launch.torch_distributed``."""
