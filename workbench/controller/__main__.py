"""``python -m workbench.controller``; also run as a file, which starts faster."""

import gc
import os
import sys

if __name__ == "__main__":
    # What a shell left open must not be held open for as long as a controller lives.
    os.closerange(3, 1024)
    if not __package__:
        from pathlib import Path

        # Where this package lies is on the path already unless fabric runs from a place of its own.
        root = str(Path(__file__).resolve().parents[2])
        if root not in sys.path:
            sys.path.append(root)
    # Importing makes many objects and no garbage: it is looked for once there is work.
    gc.disable()
    from workbench.controller.main import main
    from workbench.process_end import end_process

    end_process(main(sys.argv[1:]))
