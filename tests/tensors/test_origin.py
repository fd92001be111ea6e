"""What an origin says when its file says no more than a shape."""

from sgsdump.tensors.types import Origin


def test_an_origin_is_of_one_group_and_of_no_known_layout():
    origin = Origin((4, 3, 1, 1))
    assert (origin.layout, origin.groups) == (None, 1)
