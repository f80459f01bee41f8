"""The operating system as the agent needs it: processes, files, locks, watching, frames, the container engine's socket.

Everything may import it; it imports the standard library alone.
"""
