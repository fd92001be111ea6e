"""A page of many layers: only the rows in view are in it, and the rest works as in a page of few."""

import re

import pytest

from sgsdump.reports.html.document import MOST_ROWS, render

from .page import data, find, names, selected
from .reports import HOSTILE, report

NAMES = [f"model.layers.{i // 8}.block.op{i % 8}" for i in range(MOST_ROWS + 60)]


@pytest.fixture(scope="module")
def many():
    return report([*NAMES, *HOSTILE])


def in_page(page):
    return page.execute_script("return document.querySelectorAll('#table tbody tr:not(.gap)').length")


def settled(page, script):
    page.execute_async_script(f"{script}; requestAnimationFrame(() => setTimeout(arguments[0]))")


def test_only_rows_in_view_are_in_the_page(opened, many):
    page = opened(many)
    assert in_page(page) < 80 and page.execute_script("return document.querySelectorAll('*').length") < 2500
    assert len(names(page)) == len(data(page)["layers"])
    first = find(page, "#table tbody .name").get_attribute("title")
    settled(page, "const box = document.querySelector('.scroll'); box.scrollTop = box.scrollHeight")
    shown = page.execute_script("return [...document.querySelectorAll('#table .name')].map(name => name.title)")
    assert first not in shown and shown[-1] == names(page)[-1] and in_page(page) < 80
    # The page ends below its last part.
    end = "document.querySelector('footer').getBoundingClientRect().bottom + scrollY"
    assert page.execute_script(f"return document.documentElement.scrollHeight - ({end})") < 60
    # The list ends with the window, and so does the layer beside it.
    tall = "return ['layers', 'selected'].map(id => document.getElementById(id).offsetHeight)"
    assert page.execute_script(tall) == [984, 984]


def test_keys_walk_beyond_what_is_in_view(opened, many):
    page = opened(many)
    order = names(page)
    find(page, "#table tbody .name").send_keys("\ue010")  # End
    assert selected(page) == page.execute_script("return document.activeElement.title") == order[-1]
    page.switch_to.active_element.send_keys("\ue00e")  # page up
    assert selected(page) == order[-11]
    page.switch_to.active_element.send_keys("\ue011")  # Home
    assert selected(page) == order[0] and in_page(page) < 80


def test_a_part_of_the_network_is_chosen_by_its_name(opened, many):
    from selenium.webdriver.support.ui import Select

    page = opened(many)
    Select(find(page, "#group")).select_by_value("model.layers.7")
    assert sorted(names(page)) == sorted(name for name in NAMES if name.startswith("model.layers.7."))


def test_without_a_script_every_row_is_there(many):
    """In the text that a browser shows without one, escaped as in a short table."""
    text = render(many)
    assert len(re.findall(r'<tr data-place="', text)) == len(many.layers)
    assert "<img src=x" not in text and text.index("<noscript id") < text.index('<tr data-place="')
