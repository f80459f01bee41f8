"""Links that are innocent each and lead out of their tree together."""

from __future__ import annotations

import pytest

from workbench.learner.platform.chains import leading_out, safe_links, through_links


@pytest.mark.parametrize(
    ("links", "out"),
    [
        ({"l": "a/f", "a/l": "../f", "x": ".", "gone": "nothing/at/all"}, set()),
        ({"l": "/etc"}, {"l"}),
        ({"l": ""}, {"l"}),
        ({"l": "../x"}, {"l"}),
        ({"a/b/c": "../..", "l": "a/b/c/.."}, {"l"}),
        ({"deep/d": "../", "x": "deep/d/..", "y": "x"}, {"x", "y"}),
        ({"D": ".", "x": "d/.."}, {"x"}),
        ({"here": "here", "a": "b/c", "b": "a"}, set()),
        ({"a": "b", "b": "c", "c": "d"}, set()),
    ],
)
def test_links_are_followed_by_way_of_each_other(links: dict[str, str], out: set[str]) -> None:
    assert leading_out(links) == out


def test_a_new_link_is_left_out_that_leads_out_by_an_old_one() -> None:
    assert safe_links({"x": "p/b/..", "y": "p"}, {"p/b": ".."}) == {"y"}


def test_a_new_link_is_left_out_by_which_an_old_one_would_lead_out() -> None:
    assert safe_links({"p/b": ".."}, {"x": "p/b/.."}) == set()


def test_what_led_out_before_keeps_no_other_link_from_being_made() -> None:
    assert safe_links({"y": "p"}, {"x": "/etc"}) == {"y"}


def test_paths_through_links_are_found() -> None:
    assert through_links(["l/x", "L/y", "l", "a/l/z"], ["l"]) == ["l/x", "L/y"]
