"""Another tensor_arrays in the user's own input_config.ini, and nothing else."""

import pytest

from sgsdump.errors import ConfigError
from sgsdump.sidecars import input_config
from sgsdump.sidecars.input_config import with_tensor_arrays

HEAD = (
    b"; mine \xe5\x9b\xbe\n[INPUT_CONFIG]\ninputs = data;\ntraining_input_formats = RGB;\ninput_formats=RGB;\n"
    b"[OUTPUT_CONFIG]\noutputs = prob;\n"
)
SECTIONS = {
    "none": (b"", b"", b""),
    "no key": (b"[CONV_CONFIG] ; here\n", b"input_format=ALL_UINT8;\n", b""),
    "one line": (b"[CONV_CONFIG]\n", b"input_format = ALL_UINT8;\n", b"tensor_arrays = a , b; why\n"),
    "run on": (b"[CONV_CONFIG]\n", b"", b"tensor_arrays=a,\n   b,\n   'c'; why\n"),
    "no end": (b"[CONV_CONFIG]\n", b"", b"tensor_arrays=a,b"),
    "windows": (b"[CONV_CONFIG]\r\n", b"input_format=ALL_UINT8;\r\n", b"tensor_arrays='x';\r\n"),
    "no newline": (b"[CONV_CONFIG]", b"", b""),
}


@pytest.mark.parametrize("names", [["p/q", "r s", "t;u", "日"], ["x"]])
@pytest.mark.parametrize("case", SECTIONS)
def test_reads_back_and_keeps_every_other_byte(case, names, tmp_path):
    header, others, key = SECTIONS[case]
    written = with_tensor_arrays(HEAD + header + others + key, names)
    (tmp_path / "i.ini").write_bytes(written)
    assert list(input_config.read(tmp_path / "i.ini").tensor_arrays) == names
    assert written.startswith(HEAD + header) and others in written
    if key.strip().endswith(b"why"):
        assert written.endswith(b"; why\n")
    if b"\r\n" in header:
        assert b"\n" not in written[len(HEAD) :].replace(b"\r\n", b"")


@pytest.mark.parametrize("case", SECTIONS)
def test_no_name_to_write(case, tmp_path):
    header, others, key = SECTIONS[case]
    data = HEAD + header + others + key
    written = with_tensor_arrays(data, [])
    (tmp_path / "i.ini").write_bytes(written)
    assert input_config.read(tmp_path / "i.ini").tensor_arrays == ()
    assert key or written == data


@pytest.mark.parametrize("name", ["a,b", "it's", "a\nb", " a"])
def test_a_name_the_dialect_cannot_hold(name):
    with pytest.raises(ConfigError, match="cannot name the tensor"):
        with_tensor_arrays(HEAD, [name])
