"""The documentation is real: outputs are made, examples are run."""
