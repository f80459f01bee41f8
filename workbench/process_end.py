"""How a process of fabric ends: at once, since taking the interpreter apart takes 20 to 30 ms of processor time."""

from __future__ import annotations

import atexit
import os
import sys


def end_process(code: int) -> None:
    """End this process with an exit code; does not return.

    What was registered to be done at the end is done, and a thread that is not a daemon is waited for. What was written
    to a stream has to be flushed.
    """
    threads = sys.modules.get("threading")
    if threads is None or all(one.daemon for one in threads.enumerate() if one is not threads.main_thread()):
        atexit._run_exitfuncs()
        os._exit(code)
    sys.exit(code)
