import sys
from functools import partial

import pytest
import tqdm.auto

from sgsdump.commands.terminal import Terminal


@pytest.fixture
def at_once(monkeypatch):
    """Bars from the beginning on, drawn anew at every step."""
    monkeypatch.setattr("sgsdump.progress.DELAY_SECONDS", 0)
    monkeypatch.setattr(tqdm.auto, "tqdm", partial(tqdm.auto.tqdm, mininterval=0, miniters=0))


def test_a_bar_is_drawn_on_standard_error_and_wiped_away(at_once, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Terminal().bar("calibrate", "picture", 3) as advance:
        advance(1)
        advance(2)
    written = capsys.readouterr()
    assert not written.out
    assert "calibrate" in written.err and "2/3 [" in written.err and "picture" in written.err
    assert written.err.endswith("\r") and not written.err.split("\r")[-2].strip()


def test_no_bars_where_standard_error_is_no_terminal(at_once, capsys):
    with Terminal().bar("calibrate", "picture", 3) as advance:
        advance(2)
    assert capsys.readouterr() == ("", "")


def test_short_work_draws_nothing(capsys):
    with Terminal().bar("calibrate", "picture", 3) as advance:
        advance(3)
    assert capsys.readouterr() == ("", "")


def test_the_total_may_come_late_and_be_too_low(at_once, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Terminal().bar("tune", "run") as advance:
        advance(5, 4)
    assert "5/5 [" in capsys.readouterr().err


def test_no_bars_where_the_lines_show_how_far_it_is(at_once, capsys):
    with Terminal(bars=False).bar("dump", "step", 2) as advance:
        advance(2)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("lines", ["stdout", "stderr"])
def test_lines_go_where_they_belong_with_odd_characters_escaped(lines, capsys):
    Terminal(lines).say("tried x\udcff: 0")
    written = capsys.readouterr()._asdict()
    assert written.pop(lines.removeprefix("std")) == "tried x\\udcff: 0\n"
    assert list(written.values()) == [""]
