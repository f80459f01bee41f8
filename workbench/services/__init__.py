"""Use cases: what a client asks for, one function each, whatever client it is.

Functions take values, return frozen values or yield events, and raise :class:`~workbench.errors.FabricError`.
They never print, and may be called from any thread, each with a store of its own.
"""
