"""DebugConfig.txt: the SDK's grammar, and its silent traps as messages."""

from pathlib import Path

import pytest

from sgsdump.errors import ConfigError
from sgsdump.sidecars.debug_config import FLAGS, NEWER, DebugConfig, dump_path, read


@pytest.fixture
def written(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))

    def write(text):
        data = text.encode() if isinstance(text, str) else text
        (tmp_path / "DebugConfig.txt").write_bytes(data)
        return tmp_path

    return write


def test_absent_means_no_dump(tmp_path):
    assert read(tmp_path) is None


def test_genuine_files(shared):
    for folder in sorted((shared / "sigmastar/dumps").iterdir()):
        if not (folder / "DebugConfig.txt").exists():
            continue
        words = (folder / "DebugConfig.txt").read_text().split()
        if "dequantFixed" in words and "eliminateGarbage" not in words:
            with pytest.raises(ConfigError, match="dequantFixed without eliminateGarbage"):
                read(folder)
            continue
        config = read(folder)
        assert {word for word, field in FLAGS.items() if getattr(config, field)} == set(words) & set(FLAGS)
        assert config.path.samefile(folder)


def test_dequant_fixed_alone_does_no_harm_where_no_fixed_model_is_dumped(written):
    folder = written("dumpTensor\ndequantFixed\npath=.\n")
    config = read(folder, dumps_fixed=False)
    assert config.dump_tensor and config.dequant_fixed and not config.eliminate_garbage


def test_shipped_file(written):
    shipped = Path(__file__).parents[2] / "cfg" / "DebugConfig.txt"
    folder = written(shipped.read_bytes())
    assert read(folder) == DebugConfig(dump_tensor=True, eliminate_garbage=True, dequant_fixed=True, path=folder)


@pytest.mark.parametrize(
    "line",
    ["dumpTensor", "dumpTensor ", "dumpTensor #c", "dumpTensor=1", "dumpTensorXYZ", "dumpTensor\r", "dumpTensor // on"],
)
def test_a_line_that_begins_with_the_word_counts(written, line):
    assert read(written(line + "\n")).dump_tensor


@pytest.mark.parametrize(
    "line", ["#dumpTensor", "//dumpTensor", ";dumpTensor", "  # dumpTensor", "", "   ", "# dumpTensor dequantFixed"]
)
def test_comments_and_blank_lines_do_not(written, line):
    folder = written(f"{line}\neliminateGarbage\n")
    assert read(folder) == DebugConfig(eliminate_garbage=True, path=folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (" dumpTensor\n", ":1: ' dumpTensor': the SDK ignores an option after leading blanks"),
        ("\n\tpath=.\n", ":2: .* after leading blanks"),
        ("DumpTensor\n", "case-sensitive; write dumpTensor"),
        ("PATH=.\n", "write path="),
        ("XdumpTensor\n", "unknown option 'XdumpTensor'; did you mean 'dumpTensor'"),
        ("dumpTensr\n", "did you mean 'dumpTensor'"),
        ("dequantfixed\n", "case-sensitive; write dequantFixed"),
        ("hello world\n", "unknown option 'hello'; choose one of: dumpTensor"),
        ("dumpTensor dumpasstring\n", "dumpTensor and dumpasstring on one line"),
        ("dumpTensor path=.\n", "dumpTensor and path= on one line"),
        ("dumpTensor=0\n", "this line turns dumpTensor on in the SDK"),
        ("dumpTensor off\n", "this line turns dumpTensor on in the SDK"),
        ("path = .\n", "write path=FOLDER"),
        ("path\n", "write path=FOLDER"),
        ("dumpTensor\npath= .\n", ":2: blanks around the path ' .'"),
        ("path=. \n", "blanks around the path"),
        ("dumpTensor\r\npath=.\r\n", "carriage return"),
        ("dumpTensor\npath=nowhere\n", "there is no folder 'nowhere'"),
        ("dumpTensor\npath=~/x\n", "taken literally"),
        ("path=/" + "x" * 121 + "\n", "the path has 122 characters, but the SDK reads only 121"),
        ("dumpTensor\ndequantFixed\n", "dequantFixed without eliminateGarbage: .*padded"),
        ("\ufeffdumpTensor\n", "byte-order mark"),
        ("dumpTensor\n".encode("utf-16"), "UTF-16"),
        (b"\x00\x01", "binary file"),
    ],
)
def test_traps_become_messages(written, text, message):
    with pytest.raises(ConfigError, match=message) as caught:
        read(written(text))
    assert "DebugConfig.txt" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_of_that_name(tmp_path):
    (tmp_path / "DebugConfig.txt").mkdir()
    with pytest.raises(ConfigError, match="is a folder"):
        read(tmp_path)


def test_path(written, tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    folder = written("dumpTensor\npath=nowhere\npath=out")  # the last one wins, a missing newline does not matter
    assert read(folder).path == tmp_path / "out"
    assert read(written(f"dumpTensor\npath={tmp_path}/out/\n")).path == tmp_path / "out"
    monkeypatch.setenv("HOME", str(tmp_path / "out"))
    for text in ("dumpTensor\npath=\n", "dumpTensor\npath=", "dumpTensor\n"):
        assert read(written(text)).path == tmp_path / "out"
    monkeypatch.setenv("HOME", str(tmp_path / "gone"))
    with pytest.raises(ConfigError, match=r"\$HOME, but there is no folder"):
        read(folder := written("dumpTensor\n"))
    monkeypatch.delenv("HOME")
    with pytest.raises(ConfigError, match=r"\$HOME is not set"):
        read(folder)


def test_the_longest_path(written, tmp_path):
    name = "x" * (121 - len(str(tmp_path)) - 1)
    (tmp_path / name).mkdir()
    assert read(written(f"dumpTensor\npath={tmp_path}/{name}\n")).path == tmp_path / name
    with pytest.raises(ConfigError, match="122 characters"):
        read(written(f"dumpTensor\npath={tmp_path}/{name}y\n"))


def test_without_a_dump_the_folder_need_not_exist(written):
    assert not read(written("#dumpTensor\ndisableDomainFuseOps\ndequantFixed\npath=nowhere\n")).dump_tensor


def test_words_of_the_newer_sdk_are_handed_back(written):
    assert read(written("dumpTensor\npassexport=all\nsplitTensorByTile\n")).ignored == (
        "passexport",
        "splitTensorByTile",
    )
    assert len(read(written("\n".join(NEWER))).ignored) == 5


def test_dump_path_numbers_the_files(written, tmp_path):
    assert dump_path(DebugConfig(path=tmp_path)) == tmp_path / "sigma_outtensor_dump.bin"
    config = read(written("dumpTensor\ndumpdonotrecovery\n"))
    names = []
    for _ in range(3):
        path = dump_path(config)
        path.touch()
        names.append(path.name)
    assert names == ["sigma_outtensor_dump.bin", "sigma_outtensor_dump_1.bin", "sigma_outtensor_dump_2.bin"]
    assert dump_path(DebugConfig(path=tmp_path)).name == "sigma_outtensor_dump.bin"


def test_what_follows_a_word_of_the_newer_sdk_may_hold_other_words(written):
    # It takes a value, and an option is only what a line begins with: these lines switch nothing else on.
    config = read(written("passexport=dumpTensor_passes\nprocessexport dequantFixed path=x\n"))
    assert config.ignored == ("passexport", "processexport") and not (config.dump_tensor or config.dequant_fixed)


@pytest.mark.parametrize("word", FLAGS)
def test_each_word_is_one_flag(written, word):
    found = read(written(f"{word}\npath=.\n"))
    assert [getattr(found, field) for field in FLAGS.values()] == [one == word for one in FLAGS]


@pytest.mark.parametrize(
    "rest", ["=0", " 0", ":0", " off", "=OFF", "=False", " no", " none", "=disable", " = 0", "=0;", " off # x"]
)
def test_what_says_the_opposite_is_refused(written, rest):
    with pytest.raises(ConfigError, match=r":1: .* this line turns dumpasstring on in the SDK; .* write #dumpasstring"):
        read(written(f"dumpasstring{rest}\n"))


@pytest.mark.parametrize(
    "rest", ["=1", " on", "0", "off", "=00", " offline", " nothing", " # off", "; ", " // path=x", " ;dumpTensor"]
)
def test_anything_else_may_follow_a_word(written, rest):
    assert read(written(f"dumpasstring{rest}\n")).dump_as_string


@pytest.mark.parametrize("rest", ["=0", " off", " path=x", " dumpTensor", "=all"])
def test_after_a_word_of_the_newer_sdk_anything_may_follow(written, rest):
    found = read(written(f"passexport{rest}\n"))
    assert found.ignored == ("passexport",) and not found.dump_tensor


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dumpTensor\npath:x\n", ":2: 'path:x': the SDK ignores this line; write path=FOLDER without blanks around ="),
        ("Path = x\n", "write path=FOLDER"),
        ("pathology\n", "unknown option 'pathology'"),
        ("dumptensor=1\n", "case-sensitive; write dumpTensor"),
        ("PASSEXPORT\n", "case-sensitive; write passexport"),
        (" passexport\n", "after leading blanks"),
        ("=x\n", "unknown option '=x'"),
        ("# one\n\npath=a\ndumpTensor\npath=b\n# end\n", ":5: there is no folder 'b'; create this folder first"),
        ("dumpTensor\npath=$HOME/x\n", r"taken literally"),
        ("dumpTensor\npath='x'\n", r"taken literally"),
        ("path=" + "ü" * 61 + "\n", "the path has 122 characters, but the SDK reads only 121"),
        ("path=\tx\n", "blanks around the path"),
        ("dumpTensor\ndequantFixed\n", "add the line eliminateGarbage"),
    ],
)
def test_where_and_what_is_wrong(written, text, message):
    with pytest.raises(ConfigError, match=message):
        read(written(text))


def test_what_the_sdk_would_take_is_taken(written):
    assert read(written("path=" + "ü" * 60 + "\n")).path.name == "ü" * 60
    assert read(written("dumpTensor\ndequantFixed\neliminateGarbage\n")).dequant_fixed
    assert read(written("eliminateGarbage\n")).path == written("")
    found = read(written("dumpTensor\r\n#\r\neliminateGarbage\r\n"))
    assert found.dump_tensor and found.eliminate_garbage
    assert DebugConfig() == DebugConfig(*[False] * 6)


def test_a_debug_config_of_a_mebibyte_is_the_largest(written):
    text = "dumpTensor\n#" + "x" * (2**20 - 12)
    assert len(text) == 2**20 and read(written(text)).dump_tensor
    with pytest.raises(ConfigError):
        read(written(text + "x"))


def test_without_a_home_nothing_is_needed_unless_dumped(written, monkeypatch):
    monkeypatch.delenv("HOME")
    assert read(written("eliminateGarbage\n")).eliminate_garbage
    assert read(written("dumpTensor\npath=.\n")).dump_tensor


def test_dumps_are_numbered_only_where_they_would_be_overwritten(tmp_path):
    config = DebugConfig(path=tmp_path, do_not_recover=True)
    (tmp_path / "x_1.bin").touch()
    assert dump_path(config, "x.bin").name == "x.bin"
    (tmp_path / "x.bin").touch()
    assert dump_path(config, "x.bin").name == "x_2.bin"
    assert dump_path(DebugConfig(path=tmp_path), "x.bin").name == "x.bin"
