"""Writing to a terminal: narration on stderr, tables and JSON on stdout, colours where a person reads.

May be imported by ``cli`` alone. May import: ``formats``, ``errors``, ``job``.
"""
