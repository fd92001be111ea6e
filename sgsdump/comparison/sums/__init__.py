"""The sums of a pair: ``lanes`` holds their order and numpy's way, ``compiled`` the same at the speed of reading."""
