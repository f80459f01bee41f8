"""The command line: one module a command or a small family, imported only when that command is asked for."""
