"""Lists of numbers in text, longer than the parts in which they are parsed."""

import numpy as np
import pytest

from sgsdump.dumps.formats.shared.text_numbers import floats


@pytest.mark.parametrize(("separator", "between"), [(None, "\n"), (None, " "), (b",", ", ")])
def test_numbers_of_several_parts(separator: bytes | None, between: str) -> None:
    values = np.random.default_rng(0).normal(size=50_000).astype(np.float32)
    text = between.join(repr(float(value)) for value in values).encode()
    assert len(text) > 2 << 18
    np.testing.assert_array_equal(floats(text, separator), values)
    np.testing.assert_array_equal(floats(text + b"\n", separator), values)


def test_special_values_and_no_value() -> None:
    assert floats(b"").size == floats(b" ", b",").size == 0
    np.testing.assert_array_equal(floats(b"1e99 -nan inf"), [np.inf, np.nan, np.inf])


@pytest.mark.parametrize("text", [b"1 x", b"0x10", b"1,2"])
def test_other_text_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="convert"):
        floats(text)
