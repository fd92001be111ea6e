"""Two dumps of programs that use torch and onnxruntime, as a user makes and compares them."""

import re
import subprocess
import sys

import pytest
from hooked_programs import environment, sgsdump, trees

pytest.importorskip("torch", reason="torch (the extra torch) is not installed")

NET = """
import sys
import torch
from torch import nn

torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4)

    def forward(self, x):
        if "--clip" in sys.argv:
            x = x.clamp(-100, 100)
        if "--scale" in sys.argv:
            x = x * 0.9
        return torch.relu(self.bn(self.conv(x))) + x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.blocks = nn.Sequential(Block(), Block())
        if "--renamed" in sys.argv:
            self.features = self.blocks
            del self.blocks
        self.fc = nn.Linear(4, 5)
        for block in self.inner():
            block.bn.running_mean.uniform_(-1, 1)
            block.bn.running_var.uniform_(0.5, 2)

    def inner(self):
        return self.features if "--renamed" in sys.argv else self.blocks

    def forward(self, x):
        x = self.inner()(self.stem(x))
        return torch.softmax(self.fc(x.mean((2, 3))), 1)


model = Net().eval()
if "--changed" in sys.argv:
    model.inner()[1].conv.weight.data[0] *= 1.5
if "--freeze" in sys.argv:
    model = torch.jit.optimize_for_inference(torch.jit.trace(model, torch.zeros(1, 3, 8, 8)))
if "--frozen" in sys.argv:
    model = torch.jit.freeze(torch.jit.trace(model, torch.zeros(1, 3, 8, 8)))
if "--trace" in sys.argv:
    model = torch.jit.trace(model, torch.zeros(1, 3, 8, 8))
if "--torchair" in sys.argv:
    import sgsdump.capture.torchair as torchair

    config = torchair.CompilerConfig()
    config.dump_config.enable_dump = True
    config.dump_config.dump_path = sys.argv[-1]
    model = torch.compile(model, backend=torchair.get_npu_backend(compiler_config=config))
generator = torch.Generator().manual_seed(1)
images = [torch.randn(1 + ("--pair" in sys.argv), 3, 8, 8, generator=generator) for _ in range(2)]
if "--onnx" in sys.argv:
    import onnxruntime

    torch.onnx.export(model, (images[0],), "net.onnx", dynamo=False)
    session = onnxruntime.InferenceSession("net.onnx", providers=["CPUExecutionProvider"])
with torch.no_grad():
    for image in images:
        print(model(image)[0].argmax().item())
        if "--onnx" in sys.argv:
            print(session.run(None, {session.get_inputs()[0].name: image.numpy()})[0].argmax())
"""
CHANGED = "blocks.1.conv"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    (folder / "net.py").write_text(NET)
    return folder


@pytest.fixture(scope="module")
def dumped(place):
    """The tree of a run of the program with these options; made once."""
    made = {}

    def tree(*options):
        if options not in made:
            folder = place / f"dumps{len(made)}"
            done = sgsdump("exec", "-o", folder, "-er", "all", "--", sys.executable, "net.py", *options, cwd=place)
            assert done.returncode == 0, done.stderr
            (made[options],) = trees(folder)
        return made[options]

    return tree


def compared(place, sample, benchmark, *options):
    done = sgsdump("compare", sample, benchmark, *options, cwd=place)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


def first(text):
    """The operator and the module that the summary names."""
    match = re.search(
        r"^The first run that differs.* first(?: beyond rounding)? (\S+) \(\S+\) in (\S+), (.*)$", text, re.M
    )
    return match.groups() if match else None


def test_a_changed_weight_is_found_step_by_step(place, dumped):
    text = compared(place, dumped("--changed"), dumped())
    operator, module, why = first(text)
    assert operator.endswith("0_conv/0_convolution/output.0") and module == CHANGED
    assert "input.1 (the weight blocks.1.conv.weight) RMSE" in why and "Runs compared: 2; different: 2." in text
    verdict = text.splitlines()[1:4]
    assert verdict[0].startswith("DIFFERS: output ")
    assert verdict[1].startswith("Cause: the parameter blocks.1.conv.weight differs at ") and CHANGED in verdict[1]
    assert verdict[2] == "Next: remove the difference named as the cause, then compare again."
    assert "error metrics only" not in text


def test_a_version_with_one_more_operator_in_each_block(place, dumped):
    text = compared(place, dumped("--clip"), dumped())
    assert (
        "Runs compared: 2; different: 0.\nRuns with layers that only one side has: 2, the first is step 0, rank 0 ("
        in text
    )
    assert "the benchmark has no clip at this place of the network (blocks.0)" in text
    assert text.count("No cause: all compared values are equal.") == 3
    assert first(compared(place, dumped("--clip", "--changed"), dumped()))[1] == CHANGED


def test_a_version_with_an_operator_that_changes_the_values(place, dumped):
    """It is named, and not the first that reads what it makes."""
    for sides, which in (
        (("--scale", "--clip"), "sample"),
        (("--clip", "--scale"), "benchmark"),
    ):
        text = compared(place, *(dumped(side) for side in sides))
        cause = next(line for line in text.splitlines() if line.startswith("Cause: "))
        assert "_mul/output.0 (aten.mul), called at" in cause, text
        assert f"exists only in the {which}; as a result, " in cause


def test_modules_of_other_names(place, dumped):
    text = compared(place, dumped("--renamed"), dumped())
    assert "Runs compared: 2; different: 0.\n" in text and "only one side" not in text
    assert first(compared(place, dumped("--renamed", "--changed"), dumped()))[1] == CHANGED


def test_another_batch_is_not_comparable_and_does_not_differ(place, dumped):
    text = compared(place, dumped("--pair"), dumped())
    assert "Runs compared: 2; different: 0; with layers that cannot be compared: 2." in text
    assert (
        "layers cannot be compared; the first is 0_stem/input.0: sizes differ: sample 384 values [2, 3, 8, 8]" in text
    )


def test_eager_against_traced(place, dumped):
    text = compared(place, dumped("--trace"), dumped())
    assert text.count("No cause: all compared values are equal.") == 3 and "by place in the dataflow" in text
    assert first(compared(place, dumped("--trace", "--changed"), dumped()))[1] == CHANGED


@pytest.mark.parametrize("how", ["--frozen", "--freeze"])
def test_what_torchscript_folds_is_compared_behind_it(place, dumped, how):
    """Normalisations go into convolutions, and a product of its own stands for one with its bias."""
    text = compared(place, dumped(how), dumped())
    assert first(text) is None or "by rounding alone" in text
    assert "Runs compared: 2; different: 2, by rounding alone: 2." in text
    changed = compared(place, dumped(how, "--changed"), dumped())
    assert "by rounding alone: 2" not in changed


def test_eager_against_compiled_graph(place, dumped):
    folder = place / "air"
    folder.mkdir()
    words = [sys.executable, "net.py", "--changed", "--torchair", str(folder)]
    done = subprocess.run(words, cwd=place, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    operator, module, why = first(compared(place, folder, dumped()))
    assert module == CHANGED and operator.endswith("0_convolution/output.0")
    assert "input.1 (the weight blocks.1.conv.weight) RMSE" in why


def test_one_program_with_torch_and_onnxruntime(place, dumped):
    """Its normalisations are folded into the ONNX model's convolutions."""
    both = dumped("--onnx")
    listed = sgsdump("show", both, cwd=place).stdout
    assert len(re.findall(r"^[01] +0 +- +rounds/", listed, re.M)) == 2
    assert len(re.findall(r"^[01] +0 +net/0 +onnxruntime/", listed, re.M)) == 2 and "graph=- for" in listed
    text = compared(place, f"{both}@graph=net", f"{both}@graph=-")
    assert text.count("Compared: 10 of 10 layers") == 2 and "argument" not in text
    assert "Runs compared: 2; different: 2, by rounding alone: 2." in text
    # The torch part changed: against the ONNX runs of the first program, and against its own torch runs.
    changed = dumped("--changed")
    operator, module, why = first(compared(place, changed, f"{both}@graph=net"))
    assert (operator, module) == ("/blocks/blocks.1/conv/Conv_output_0", CHANGED)
    assert "inputs /blocks/blocks.0/Add_output_0 RMSE" in why or "inputs equal" in why
    assert first(compared(place, changed, f"{both}@graph=-"))[1] == CHANGED
    # The folder that was -o stands for the only tree in it.
    listed = sgsdump("show", both.parent, "--step", "1", cwd=place).stdout
    assert f"2 runs; write {both.parent}@step=1,graph=… (graph=- for" in listed
    assert sgsdump("show", f"{both.parent}@step=1,graph=net", "prob", cwd=place).returncode == 2
    # Tree against tree pairs each part with its like.
    text = compared(place, both, both)
    assert "Runs compared: 4; different: 0." in text


def test_one_tree_alone_is_told_what_lacks_in_one_line(place, dumped):
    done = sgsdump("compare", dumped(), cwd=place)
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.count("\n") == 1
    assert "To compare two dumps, also give the reference dump" in done.stderr


def test_a_configuration_that_is_broken_when_the_program_ends(place):
    (place / "live.json").write_text('{"dump_enable": "true", "er": "all"}')
    program = "import torch; torch.nn.Linear(2, 2)(torch.ones(1, 2)); open('live.json', 'w').write('{oops')"
    words = ("-config", "live.json", "--", sys.executable, "-c", program)
    done = sgsdump("exec", "-o", place / "live", *words, cwd=place)
    assert done.returncode == 0 and "changed configuration ignored: live.json" in done.stderr, done.stderr
    assert "not complete" not in sgsdump("show", place / "live", cwd=place).stdout
