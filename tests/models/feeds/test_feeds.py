"""Feeds: every form of -i and -n, held against genuine inputs and OpenCV."""

import sys

import numpy as np
import pytest
from PIL import Image

from sgsdump.errors import InputError, MissingExtra, SgsdumpError
from sgsdump.models.feeds import picture
from sgsdump.models.feeds.feeds import InputSpec, board_notes, expand, feeds
from sgsdump.models.model import fit
from sgsdump.sidecars import input_config, input_text
from sgsdump.sidecars.input_config import InputConfig, ModelInput
from sgsdump.tensors.dtypes import dtype_named

F32 = np.dtype(np.float32)
SPEC = InputSpec("data", (1, 3, 4, 6), F32)
RGB = InputConfig((ModelInput("data", "RGB", "RGB", (1.0, 2.0, 3.0), (4.0, 5.0, 6.0)),))


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A work folder, current, with pictures a.png and b.png of 6 x 4 pixels."""
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate("ab"):
        pixels = np.random.default_rng(seed).integers(0, 256, (4, 6, 3), np.uint8)
        Image.fromarray(pixels).save(f"{name}.png")
    return tmp_path


def pixels(name):
    return np.asarray(Image.open(name)).astype(np.float32)


def only(images, preprocess=None, spec=SPEC, config=None, normalised=True):
    [(_, feed)] = feeds(images, preprocess, [spec], config, normalised)
    assert list(feed) == [spec.name]
    assert feed[spec.name].dtype == spec.dtype and feed[spec.name].flags.c_contiguous
    return feed[spec.name]


def script(work, text, name="pre.py"):
    (work / name).write_text(text)
    return name


# the built-in preprocess


def test_built_in_equals_the_genuine_inputs(shared):
    folder, test_picture = shared / "sigmastar/model", shared / "sigmastar/model/test.jpg"
    config = input_config.read(folder / "input_config.ini")
    spec = InputSpec("data", (1, 3, 20, 24), F32)
    for name, normalised in (("in_norm.txt", True), ("in_raw.txt", False)):
        genuine = input_text.read(folder / name).values.reshape(1, 20, 24, 3).transpose(0, 3, 1, 2)
        made = only(str(test_picture), spec=spec, config=config, normalised=normalised)
        assert np.abs(made - genuine).max() == 0  # bit for bit, OpenCV's resize included
        assert np.array_equal(only(str(folder / name), spec=spec, config=config, normalised=normalised), genuine)


@pytest.mark.parametrize(
    ("own", "wanted"),
    [((33, 57), (100, 80)), ((480, 640), (240, 320)), ((7, 5), (3, 40)), ((1, 1), (5, 5)), ((97, 64), (13, 14))],
)
def test_resize_is_opencvs_bilinear(own, wanted):
    cv2 = pytest.importorskip("cv2")
    source = np.random.default_rng(1).integers(0, 256, (*own, 3), dtype=np.uint8)
    made = picture.resize(source, *wanted)
    assert np.abs(made - cv2.resize(source.astype(np.float32), wanted[::-1])).max() < 0.02
    assert np.abs(np.rint(made) - cv2.resize(source, wanted[::-1])).max() <= 1


def test_channel_order_mean_and_std(work):
    rgb = pixels("a.png")
    assert np.allclose(only("a.png", config=RGB)[0].transpose(1, 2, 0), (rgb - [1, 2, 3]) / [4, 5, 6], atol=1e-6)
    bgr = InputConfig((ModelInput("data", "BGR", "BGR", (1.0, 2.0, 3.0), (4.0, 5.0, 6.0)),))
    assert np.array_equal(only("a.png", config=bgr), only("a.png", config=RGB)[:, ::-1])
    assert np.array_equal(only("a.png", config=bgr, normalised=False)[0].transpose(1, 2, 0), rgb[..., ::-1])
    lone = np.asarray(Image.open("a.png").convert("L"), np.float32)
    for trained, shape in (("GRAY", (1, 1, 4, 6)), ("RGB", (1, 1, 4, 6)), ("RGB", (None, 4, 6, 1))):
        gray = InputConfig((ModelInput("data", trained, "GRAY", (7.0, 8.0, 9.0), (2.0, 3.0, 4.0)),))
        for normalised, expected in ((True, (lone - 7) / 2), (False, lone)):
            made = only("a.png", spec=InputSpec("data", shape, F32), config=gray, normalised=normalised)
            assert made.size == 24 and np.array_equal(made.reshape(4, 6), expected)
        assert not board_notes(gray, [InputSpec("data", shape, F32)])
    assert len(board_notes(gray, [InputSpec("data", (1, 3, 4, 6), F32)])) == 1


def test_free_sizes_channels_last_and_integer_models(work):
    free = InputSpec("data", (None, 3, None, None), F32)
    assert np.array_equal(only("a.png", spec=free, config=RGB), only("a.png", config=RGB))
    last = only("a.png", spec=InputSpec("data", (1, 2, 3, 3), F32), config=RGB)
    assert last.shape == (1, 2, 3, 3)
    raw = only("a.png", spec=InputSpec("data", (1, 4, 6, 3), np.dtype(np.uint8)), config=RGB, normalised=False)
    assert np.array_equal(raw[0], pixels("a.png"))


def test_pictures_of_every_mode_and_turned_by_exif(work):
    image = Image.open("a.png")
    for mode in ("RGBA", "P", "L", "CMYK", "1"):
        image.convert(mode).save(f"m{mode}.tif")
        assert picture.decode(work / f"m{mode}.tif").shape == (4, 6, 3)
    Image.fromarray(np.full((2, 2), 40000, np.uint16)).save("deep.png")
    assert picture.decode(work / "deep.png", gray=True).max() == 40000 >> 8
    exif = image.getexif()
    exif[0x0112] = 6
    image.save("turned.png", exif=exif)
    assert np.array_equal(picture.decode(work / "turned.png"), np.rot90(picture.decode(work / "a.png"), -1))


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".bmp", ".gif"])
def test_damaged_pictures(work, suffix):
    Image.open("a.png").resize((64, 64)).save(f"x{suffix}")
    data = (work / f"x{suffix}").read_bytes()
    for cut in (0, 4, 20, len(data) // 2):
        (work / f"x{suffix}").write_bytes(data[:cut])
        with pytest.raises(InputError, match=f"x{suffix}") as caught:
            only(f"x{suffix}", config=RGB)
        assert "\n" not in str(caught.value)


def test_decompression_bomb(work, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    with pytest.raises(InputError, match="larger than 20 pixels"):
        only("a.png", config=RGB)


def test_what_the_built_in_cannot_know(work):
    with pytest.raises(InputError, match="give a preprocess file"):
        only("a.png")
    with pytest.raises(
        InputError, match=r"does not name the model's input 'x'; input_config\.ini names the inputs data"
    ):
        only("a.png", spec=InputSpec("x", (1, 3, 4, 6), F32), config=RGB)
    with pytest.raises(InputError, match=r"takes no image"):
        only("a.png", spec=InputSpec("data", (1, 10), F32), config=RGB)
    with pytest.raises(InputError, match=r"RGB image a.png has shape \[1, 4, 6, 3\], .* takes \[1, 4, 4, 6\]"):
        only("a.png", spec=InputSpec("data", (1, 4, 4, 6), F32), config=RGB)
    raw = InputConfig((ModelInput("data", "RAWDATA_F32_NHWC", "RAWDATA_F32_NHWC", (), ()),))
    with pytest.raises(InputError, match=r"image format. Give an .npy file instead of"):
        only("a.png", config=raw)


# the user's own preprocess

GET_IMAGE = """
import numpy as np
from PIL import Image
def get_image(img_path, resizeH=4, resizeW=6, norm=True, rgb=False, nchw=False):
    img = np.asarray(Image.open(img_path)).astype(np.float64)
    img = (img - 127) / 128 if norm else img
    return np.expand_dims(np.transpose(img, (2, 0, 1)) if nchw else img, 0)
"""
NHWC_ONLY = """
from PIL import Image
import numpy as np
def image_preprocess(path, norm=True):
    img = np.asarray(Image.open(path)).astype('float32')[None]
    return (img - 127) / 128 if norm else img
"""


@pytest.mark.parametrize("text", [GET_IMAGE, NHWC_ONLY, NHWC_ONLY.replace("image_preprocess", "get_image")])
def test_users_function(work, text):
    name = script(work, text)
    expected = pixels("a.png").transpose(2, 0, 1)[None]
    assert np.allclose(only("a.png", name), (expected - 127) / 128)
    assert np.array_equal(only("a.png", name, normalised=False), expected)
    whole = InputSpec("data", (None, None, None, None), F32)
    assert only("a.png", name, spec=whole).shape == (
        1,
        3,
        4,
        6,
    )  # nothing to tell by: the function's layout is believed


def test_without_batch_axis_and_through_keywords(work):
    text = "def get_image(p, **k):\n    assert k == dict(norm=True, nchw=True)\n    return np.ones((3, 4, 6))"
    assert only("a.png", script(work, f"import numpy as np\n{text}")).shape == SPEC.shape


def test_several_inputs(work):
    script(work, "import numpy as np\ndef get_image(p, nchw=False): return np.full((1, 3, 4, 6), 1)", "one.py")
    script(work, "import numpy as np\ndef get_image(p, nchw=False): return np.load(p) * 2", "two.py")
    np.save("v.npy", np.ones((1, 5)))
    (work / "list.txt").write_text("a.png, v.npy\n\nb.png,v.npy\n")
    specs = [SPEC, InputSpec("v", (1, 5), F32)]
    made = list(feeds("list.txt", "one.py, two.py", specs))
    assert [label for label, _ in made] == ["a.png,v.npy", "b.png,v.npy"]
    assert made[0][1]["data"].sum() == 72 and made[0][1]["v"].tolist() == [[2.0] * 5]
    assert len(list(feeds("a.png,v.npy", "one.py,two.py", specs))) == 1
    with pytest.raises(InputError, match="1 preprocess file for 2 model inputs"):
        feeds("list.txt", "one.py", specs)
    with pytest.raises(InputError, match=r"a.png: 1 file for a model of 2 inputs"):
        feeds("a.png", "one.py,two.py", specs)


def test_its_folder_is_importable_only_while_it_loads(work):
    (work / "sub").mkdir()
    script(work / "sub", "SIZE = (1, 3, 4, 6)", "beside_it_only.py")
    script(work / "sub", "import beside_it_only, numpy\ndef get_image(p, nchw): return numpy.ones(beside_it_only.SIZE)")
    before = list(sys.path)
    assert only("a.png", "sub/pre.py").sum() == 72
    assert sys.path == before
    assert not list(work.rglob("*.pyc"))[1:]  # only what the imported neighbour may leave
    sys.modules.pop("beside_it_only", None)


def test_two_files_of_one_name(work):
    for folder, value in (("x", 1), ("y", 2)):
        (work / folder).mkdir()
        script(work / folder, f"import numpy\ndef get_image(p, nchw): return numpy.full((1, 3, 4, 6), {value})")
    specs = [SPEC, InputSpec("other", SPEC.shape, F32)]
    [(_, feed)] = feeds("a.png,b.png", "x/pre.py,y/pre.py", specs)
    assert (feed["data"].max(), feed["other"].max()) == (1, 2)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("def other(): pass", InputError, "pre.py has no function get_image"),
        ("x = 1\ny = (", InputError, "pre.py:2: the preprocess failed: SyntaxError"),
        ("x = 1\n\nraise ValueError('a\\nb')", InputError, "pre.py:3: the preprocess failed: ValueError: 'a b'"),
        ("import sys\nsys.exit(3)", InputError, "pre.py:2: .* SystemExit"),
        ("import no_such_package_x", InputError, "needs the Python package no_such_package_x"),
        ("def get_image(p, nchw):\n    return None", InputError, "returned no array of numbers for a.png"),
        ("def get_image(p, nchw):\n    return p", InputError, "returned no array of numbers"),
        (
            "def get_image(p, nchw):\n    x = 1\n    return x / 0",
            InputError,
            "pre.py:3: .* on a.png: ZeroDivisionError",
        ),
        ("def get_image(p, size):\n    return 1", InputError, "pre.py: .*TypeError"),
        (
            "import numpy as n\ndef get_image(p, nchw):\n    return n.ones((1, 3, 5, 6))",
            InputError,
            r"\[1, 3, 5, 6\].*\[1, 3, 4, 6\]",
        ),
        (
            "import numpy as n\ndef get_image(p, nchw):\n    return n.full((1, 3, 4, 6), n.nan)",
            InputError,
            "72 NaN or infinite",
        ),
    ],
)
def test_mistakes_in_it(work, text, kind, message):
    with pytest.raises(kind, match=message) as caught:
        only("a.png", script(work, text))
    assert "\n" not in str(caught.value)


def test_missing_file_and_missing_opencv(work, monkeypatch):
    with pytest.raises(InputError, match=r"there is no preprocess file no.py"):
        feeds("a.png", "no.py", [SPEC])
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingExtra, match=r"pip install 'sgsdump\[cv\]'"):
        feeds("a.png", script(work, "import cv2"), [SPEC])
    with pytest.raises(MissingExtra, match=r"sgsdump\[cv\]"):
        only("a.png", script(work, "def get_image(p, nchw):\n    import cv2"))


def test_raw_values_for_the_fixed_model(work):
    with pytest.raises(InputError, match="no parameter norm"):
        only("a.png", script(work, "def get_image(p, nchw): return 1"), normalised=False)
    always = "import numpy as n\ndef get_image(p, norm, nchw): return n.full((1, 3, 4, 6), {})"
    with pytest.raises(InputError, match=r"norm=False has values from -1 to -1, but a fixed model takes the raw image"):
        only("a.png", script(work, always.format(-1.0)), normalised=False)
    assert only("a.png", script(work, always.format(254.6)), normalised=False).max() == 255


# arrays and texts


def test_npy(work):
    array = np.arange(72, dtype=np.float64).reshape(1, 3, 4, 6)
    for given in (array, array[0], array.transpose(0, 2, 3, 1), array.astype(np.int16)):
        np.save("x.npy", given)
        assert np.array_equal(only("x.npy"), array)
    np.save("x.npy", array - 1)
    with pytest.raises(InputError, match="the values correspond to grey levels from -3 to 423, not 0 to 255"):
        only("x.npy", config=RGB, normalised=False)
    with pytest.raises(InputError, match=r"values from -1.0 to 70.0, but the model's input 'data' is uint8"):
        only("x.npy", spec=InputSpec("data", SPEC.shape, np.dtype(np.uint8)))
    np.save("x.npy", array * 1e6)
    with pytest.raises(InputError, match=r"too large for .* float16"):
        only("x.npy", spec=InputSpec("data", SPEC.shape, np.dtype(np.float16)))
    np.save("x.npy", np.float32(3))
    assert only("x.npy", spec=InputSpec("data", (), F32)).shape == ()


def test_bad_npy(work):
    np.save("x.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(InputError, match=r"x.npy is not an .npy file of numbers"):
        only("x.npy")
    np.save("x.npy", np.array(["text"]))
    with pytest.raises(InputError, match="does not hold one array of numbers"):
        only("x.npy")
    for data in (b"", b"\x93NUMPY\x01\x00\x10", b"PK\x03\x04", b"hello"):
        (work / "x.npy").write_bytes(data)
        with pytest.raises(InputError, match=r"x.npy"):
            only("x.npy")


def test_input_text_goes_in_as_it_is(work):
    array = np.arange(72).reshape(1, 4, 6, 3)
    input_text.write("in.txt", array, 4, 6)
    script(work, "def get_image(p, nchw): raise SystemExit")
    for preprocess in (None, "pre.py"):
        assert np.array_equal(only("in.txt", preprocess), array.transpose(0, 3, 1, 2))
    assert only("in.txt", spec=InputSpec("data", (None, 3, 4, None), F32)).shape == SPEC.shape
    with pytest.raises(InputError, match=r"in.txt holds 72 values, but the input 'data' takes shape \[1, 3, 5, 5\]"):
        only("in.txt", spec=InputSpec("data", (1, 3, 5, 5), F32))


def test_random(work):
    first, again, other = only("random"), only("random:0"), only("random:7")
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert -1 <= first.min() < first.max() <= 1
    raw = only("random", config=RGB, normalised=False)
    assert np.array_equal(raw, np.rint(raw)) and 0 <= raw.min() < 50 and 200 < raw.max() <= 255
    mean, std = (np.array(triple).reshape(3, 1, 1) for triple in (RGB.inputs[0].mean, RGB.inputs[0].std))
    assert np.allclose(only("random", config=RGB), (raw - mean) / std)
    assert set(only("random", spec=InputSpec("i", (None, 50), np.dtype(np.int64))).flat) == {0, 1}
    with pytest.raises(InputError, match=r"has no fixed shape \(\[1, \?\]\)"):
        only("random", spec=InputSpec("i", (1, None), F32))


# what -i names


def test_folders_and_lists(work):
    (work / "notes.md").write_text("no picture")
    np.save("c.npy", np.zeros(3))
    assert expand(".") == [("a.png",), ("b.png",), ("c.npy",)]
    (work / "pics").mkdir()
    (work / "a.png").rename(work / "pics" / "a, 1.png")
    (work / "list.txt").write_text("a, 1.png\r\n\r\n")
    assert expand("pics:list.txt") == [("pics/a, 1.png",)]
    (work / "pics" / "list").write_text("../b.png\na, 1.png")  # relative to the list, when not to the current folder
    assert expand("pics/list") == [("pics/../b.png",), ("pics/a, 1.png",)]
    assert len(expand("b.png")) == 1


def test_a_folder_for_each_input(work):
    for folder, names in (("left", "01"), ("right", "45")):
        (work / folder).mkdir()
        for name in names:
            (work / folder / f"{name}.npy").touch()
    assert expand("left,right", 2) == [("left/0.npy", "right/4.npy"), ("left/1.npy", "right/5.npy")]
    (work / "right/6.npy").touch()
    with pytest.raises(InputError, match=r"have different numbers of files \(left 2, right 3\)"):
        expand("left,right", 2)


@pytest.mark.parametrize(
    ("images", "inputs", "message"),
    [
        ("no.jpg", 1, "there is no image, folder or list 'no.jpg'"),
        ("empty", 1, "no images and no .npy or .npz files in the folder empty"),
        ("blank.txt", 1, "the list blank.txt is empty"),
        ("list.txt", 1, "list.txt:3: there is no file 'gone.png'"),
        ("no:list.txt", 1, "there is no folder 'no'"),
        ("empty:list.txt", 2, "list.txt:1: 1 file for a model of 2 inputs"),
        (".", 2, "1 file for a model of 2 inputs"),
        ("a.png,gone.png", 2, "-i: there is no file 'gone.png'"),
        ("a.png,b.png,a.png", 2, "3 files for a model of 2 inputs"),
    ],
)
def test_what_is_not_there(work, images, inputs, message):
    (work / "empty").mkdir()
    (work / "blank.txt").write_text("\n\n")
    (work / "list.txt").write_text("a.png\n\ngone.png\n")
    with pytest.raises(InputError, match=message) as caught:
        expand(images, inputs)
    assert "\n" not in str(caught.value)


def test_pictures_are_made_one_at_a_time(work):
    (work / "c.png").write_bytes(b"damaged")
    made = feeds(".", None, [SPEC], RGB)
    assert [next(made)[0], next(made)[0]] == ["a.png", "b.png"]
    with pytest.raises(SgsdumpError, match=r"c.png"):
        next(made)


def test_a_model_of_text():
    with pytest.raises(InputError, match="input 's' takes text"):
        feeds("random", None, [InputSpec("s", (1,), np.dtype(object))])


def test_a_model_without_inputs():
    with pytest.raises(InputError, match="no inputs"):
        feeds("random", None, [])


@pytest.mark.parametrize("name", ["int4", "uint4", "float8_e5m2"])
def test_inputs_of_types_beyond_numpy(name: str) -> None:
    dtype = dtype_named(name)
    spec = InputSpec("x", (2, 3), dtype)
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    fitted = fit(values, spec, "NCHW", "a.npy")
    assert fitted.dtype == dtype
    np.testing.assert_array_equal(fitted.astype(np.float32), values)
    with pytest.raises(InputError, match=r"a\.npy holds values"):
        fit(values * 1e6, spec, "NCHW", "a.npy")


@pytest.mark.parametrize(("batch", "says"), [(4, ": give .npy files with a batch of 4"), (0, ""), (None, "")])
def test_one_picture_for_a_batch_says_what_to_give(batch, says) -> None:
    spec = InputSpec("data", (batch, 3, 8, 10), np.dtype(np.float32))
    wrong = np.zeros((1, 8, 10, 3 if batch is not None else 2), np.float32)
    with pytest.raises(InputError) as raised:
        fit(wrong, spec, "NHWC", "the picture")
    assert str(raised.value).partition(", 3, 8, 10]")[2].startswith(says)
    assert ("with a batch of" in str(raised.value)) == bool(says)


def test_samples_in_one_array_are_told_to_be_given_one_at_a_time() -> None:
    with pytest.raises(InputError, match=r"takes \[1, 24\]: give one file per sample, or a data loader"):
        fit(np.zeros((100, 24), np.int64), InputSpec("input_ids", (1, 24), np.dtype(np.int64)), "NCHW", "texts.npz")
