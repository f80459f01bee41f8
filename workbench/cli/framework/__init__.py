"""What every command stands on: the registry, dispatch to one command, shared options, help and completion.

``registry`` lists the commands without importing them; ``dispatch`` imports one and runs it through Typer;
``declare`` turns a function into a command; ``options`` and ``run_options`` declare what several commands take.
Commands import it; it imports no command.
"""
