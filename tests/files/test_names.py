"""File names made of tensor names."""

from __future__ import annotations

import os
from pathlib import PurePosixPath

from hypothesis import example, given
from hypothesis import strategies as st

from sgsdump.files.names import NAME_BYTES, Taken, file_stem, fitting, safe

NAMES = st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=8)


@given(NAMES)
@example(["..", "../x", "a/b", "a_b", "a:b", "x" * 300, "x" * 300 + "y", "\0", "é" * 200, ""])
@example(["a~2", "a", "a"])
def test_names_are_files_in_the_folder_and_all_different(names: list[str]) -> None:
    taken = Taken()
    found = [taken.free(safe(name), "#(1, 2)") for name in names]
    assert len(set(found)) == len(names)
    for file in found:
        assert PurePosixPath("folder", file).parts == ("folder", file)
        assert len(os.fsencode(file)) <= NAME_BYTES
        assert file.isprintable() or not any(ord(c) < 32 for c in file)
        assert file.endswith("#(1, 2)")


def test_the_characters_the_sdk_replaces() -> None:
    assert safe("a/b:c*d?e<f>g|h#i j") == "a_b_c_d_e_f_g_h#i j"


def test_names_that_fit_stay() -> None:
    assert fitting("conv1", ".xx.output0") == "conv1.xx.output0"


def test_long_names_keep_their_beginning_and_are_kept_apart() -> None:
    one, two = (fitting("x" * 400 + end, ".out") for end in "ab")
    assert one != two
    assert one.startswith("x" * 200)
    assert one.endswith(".out")


def test_where_case_does_not_count_no_name_differs_by_it_alone() -> None:
    names = "Conv1", "conv1", "CONV1", "conv1~2"
    assert [Taken(ignores_case=True).free(name, ".bin") for name in names[:1]] == ["Conv1.bin"]
    taken = Taken(ignores_case=True)
    folded = [taken.free(name, ".bin").lower() for name in names]
    assert len(set(folded)) == 4 and folded[:2] == ["conv1.bin", "conv1~2.bin"]
    apart = Taken(ignores_case=False)
    assert [apart.free(name, ".bin") for name in names] == [f"{name}.bin" for name in names]


def test_no_stem_is_a_device_of_windows() -> None:
    names = "aux", "NUL.weight", "com1", "COM10", "auxiliary", "lpt9.x.y", "x.aux", "x..", ".. "
    assert [file_stem(name) for name in names] == [
        *("aux_", "NUL_.weight", "com1_", "COM10", "auxiliary", "lpt9_.x.y", "x.aux", "x__", "___"),
    ]  # fmt: skip
