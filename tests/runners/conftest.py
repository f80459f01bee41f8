"""What tests of runners share."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("runners.conformance")
