"""The parts that screens are put together from: each draws one thing, and reads no store.

Screens and base import from here. It imports core, workers and style.
"""
