"""``python -m workbench.learner``: the agent's commands, from where the package is installed."""

import sys

from workbench.learner.main import main

sys.exit(main(sys.argv[1:]))
