"""YAML text becomes nodes that know their file and line; nothing here knows the keys of a manifest.

``source`` reads the text, ``compose`` makes ``nodes`` from it, ``faults`` gathers what is wrong, and ``errors``
explains what the YAML parser refused. Others import ``faults.nearest``, ``compose`` and ``source``. It imports
``workbench.errors`` alone.
"""
