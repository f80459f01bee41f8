"""How the commands of tests' jobs wait for a file without a process for each look: a look then costs a tenth."""

from __future__ import annotations

from typing import Final

NAP: Final = "exec {nap}<> <(:); nap() { read -rt $1 -u $nap || :; }; "
"""What such a command begins with; ``nap 0.05`` then waits as ``sleep`` does. Only bash knows how."""
