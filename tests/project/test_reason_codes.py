"""The table of the codes of reasons is whole: what the product can say is in it, and nothing else."""

from __future__ import annotations

import ast
import re

import pytest

from tests.project import structure
from workbench.controller.decide.outcome import REFUSED
from workbench.job import REASON_CODES, ReasonCode

TABLE = "workbench.job"


def codes_in_the_product() -> dict[str, str]:
    """Return each code that stands as a text in a module, with one such module."""
    found = {}
    for name, module in structure.modules(having=r"[CS]\d{3}").items():
        for node in ast.walk(module.tree) if name != TABLE else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.update(dict.fromkeys(re.findall(r"^[CS]\d{3}$", node.value), name))
    return found


def test_every_code_that_a_reason_can_have_is_explained() -> None:
    found = codes_in_the_product()

    known = {each.code for each in REASON_CODES}
    assert {code: module for code, module in found.items() if code not in known} == {}
    assert known - set(found) == set()


def test_the_codes_are_in_order_and_each_is_there_once() -> None:
    codes = [each.code for each in REASON_CODES]

    assert codes == sorted(set(codes))


@pytest.mark.parametrize("each", REASON_CODES, ids=lambda each: each.code)
def test_an_attempt_after_a_fault_takes_its_owners_allowance(each: ReasonCode) -> None:
    allowed = {"C": ("", "max_restarts"), "S": ("", "max_platform_restarts")}

    assert each.allowance in allowed[each.code[0]]
    if each.code.startswith(REFUSED):
        assert each.allowance == ""  # it would be refused again
