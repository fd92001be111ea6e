from watched import Bar, Watched

from sgsdump.progress import SILENT, each


def test_silence():
    with SILENT.bar("compare", "layer", 3) as advance:
        advance(1)
        advance(2, 5)
    SILENT.say("nobody hears this")
    assert repr(SILENT) == "SILENT"


def test_each_counts_an_item_when_the_next_is_asked_for():
    progress = Watched()
    items = each(progress, "ab", "split", "part", 2)
    assert not progress.bars
    assert next(items) == "a" and progress.bars == [Bar("split", "part", 2)]
    assert next(items) == "b" and progress.bars[0].steps == [(1, 2)]
    assert list(items) == [] and progress.bars[0].is_full


def test_each_ends_its_bar_when_it_is_left():
    progress = Watched()
    items = each(progress, "ab", "split", "part")
    next(items)
    items.close()
    assert progress.bars == [Bar("split", "part", None, open=False)]
