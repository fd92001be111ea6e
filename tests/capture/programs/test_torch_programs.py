"""Programs of every kind that torch has: what they print stays the same, and their operators are dumped."""

import numpy as np
import pytest
from torch_runs import plain, runner, values_of, write_program

from sgsdump.capture.programs.control import Steps

torch = pytest.importorskip("torch", reason="torch (the extra torch) is not installed")

ON_NET = """
net, x = Net().eval(), image()
{made}
with torch.no_grad():
    for step in range(3):
        print(made(x + step).double().sum().item())
"""
KINDS = {
    "eager": "made = net",
    "scripted": "made = torch.jit.script(net)",
    "traced": "made = torch.jit.trace(net, x)",
    "exported": "made = torch.export.export(net, (x,)).module()",
    "fx": "made = torch.fx.symbolic_trace(net)",
    "compiled": "made = torch.compile(net, backend='aot_eager')",
    "compiled in place": "net.compile(backend='eager'); made = net",
    "compiled function": "made = torch.compile(lambda x: net(x), backend='eager')",
}


@pytest.fixture
def run(tmp_path, capfd):
    return runner(tmp_path, capfd)


@pytest.fixture(scope="module")
def eager(tmp_path_factory):
    """What the eager net prints without the hooks."""
    return plain(write_program(tmp_path_factory.mktemp("eager"), ON_NET.format(made=KINDS["eager"]))).stdout


def leaves(result, step):
    """The operators of a step that have none inside, in order: (type, module)."""
    ran = [line for line in result.every() if line.get("event") == "operator" and line["step"] == step]
    return [(line["type"], line["module"]) for line in ran if line["type"].startswith("aten.")]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_program_runs_as_before_and_is_dumped(run, eager, kind):
    result = run(ON_NET.format(made=KINDS[kind]), steps=Steps(((1, 1),)), inside="eager")
    assert result.text == eager
    assert result.captured.status == 0 and result.captured.complete
    assert result.process.steps == (1,)
    ran = leaves(result, 1)
    if kind == "compiled function":  # is the outermost itself
        ran = [(name, module.replace("root.Net", "root")) for name, module in ran]
    convolution = "aten._convolution" if kind == "traced" else "aten.convolution"
    block = [convolution, "aten.native_batch_norm", "aten.relu_", "aten.add"]
    tail = ["aten.mean", "aten.t", "aten.addmm", "aten._softmax"]
    assert [name for name, _ in ran] == [convolution, *block, *block, *tail]
    modules = [module for _, module in ran]
    assert modules[0] == "root.stem" and modules[1] == "root.blocks.0.conv" and modules[6] == "root.blocks.1.norm"
    if kind not in ("scripted", "traced"):  # of whose operators without weights torch does not say where they stand
        assert modules[3] == "root.blocks.0" and modules[8] == "root.blocks.1" and modules[-1] == "root"
    total = values_of(result.root / result.lines(step=1, type="aten._softmax", side="out")[0]["file"])
    assert total.astype(np.float64).sum() == float(eager.split()[1])
    told = " ".join(result.captured.notes)
    assert ("operator by operator" in told) == kind.startswith("compiled")


def test_a_compiled_program_stays_compiled_in_the_steps_that_are_not_dumped(run):
    result = run(
        """
compiled = []

def backend(graph, inputs):
    print("compiled")
    def call(*args):
        compiled.append(1)
        return graph.forward(*args)
    return call

made = torch.compile(Net().eval(), backend=backend)

@torch.compile(backend=backend)
def doubled(x):
    return made(x) * 2

with torch.no_grad():
    for step in range(4):
        made(image())
        print(len(compiled))
    for step in range(4):
        doubled(image())
        print(len(compiled))
""",
        steps=Steps(((1, 1), (5, 5))),
        inside="eager",
    )
    assert result.text.split() == ["compiled", "1", "1", "2", "3", "compiled", "4", "4", "5", "6"]
    assert result.process.steps == (1, 5)
    assert {line["model"] for line in result.lines(step=5)} == {"doubled"}


def test_rounds_are_warm_up_prefill_and_decoding(run):
    source = """
model = Decoder().eval()

def generate(tokens, new):
    past, out = [{}, {}], []
    tokens = torch.tensor([tokens])
    for _ in range(new):
        tokens = model(tokens, past)[:, -1:].argmax(-1)
        out.append(tokens.item())
    return out

with torch.inference_mode():
    model(torch.zeros(1, 3, dtype=torch.long), [{}, {}])  # warm-up
    print(generate([1, 2, 3, 4], 5))
"""
    result = run(source)
    assert result.process.steps == (0, 1, 2, 3, 4, 5)
    shapes = [result.lines(step=step, op="embed", side="in")[0]["shape"] for step in range(6)]
    assert shapes == [[1, 3], [1, 4], [1, 1], [1, 1], [1, 1], [1, 1]]
    lengths = [result.lines(step=step, op="layers.1.cat", side="out")[0]["shape"][1] for step in range(2, 6)]
    assert lengths == [5, 6, 7, 8]
    tokens = [int(result.values(step=step, op="head", side="out")[0, -1].argmax()) for step in range(1, 6)]
    assert result.text.strip() == str(tokens)
    top = [line["id"] for line in result.every() if line.get("event") == "operator" and line["step"] == 3]
    assert [id for id in top if "_" not in id] == ["0", "1", "2", "3"]  # embed, two layers, head

    chosen = run(source, steps=Steps(((2, 3),)), content="stats")
    assert chosen.text == result.text and chosen.process.steps == (2, 3)


def test_inference_mode_has_the_operators_of_no_grad(run):
    source = """
net, decoder, lstm = Net().eval(), Decoder().eval(), nn.LSTM(4, 3)
with torch.{mode}(), torch.autocast("cpu", torch.bfloat16, enabled={half}):
    print(net(image()).sum().item(), decoder(torch.tensor([[1, 2]]), [{{}}, {{}}]).sum().item())
    print(lstm(torch.ones(2, 1, 4))[0].sum().item())
"""
    results = {}
    for mode in ("no_grad", "inference_mode"):
        for half in (False, True):
            text = source.format(mode=mode, half=half)
            result = results[mode, half] = run(text)
            assert result.text == plain(write_program(result.root / "plain", text)).stdout
            assert not result.process.troubles
    own = [results[mode, False] for mode in ("no_grad", "inference_mode")]
    lines = [[(line["op"], line["side"], line["slot"], line["shape"]) for line in each.lines()] for each in own]
    assert lines[0] == lines[1] and any("addmm" in op for op, *_ in lines[1])
    for pair in zip(*(each.lines() for each in own)):
        files = [each.root / line["file"] for each, line in zip(own, pair) if line["file"]]
        assert not files or np.array_equal(*map(values_of, files))


def test_training_steps_and_recomputed_activations(run):
    source = """
from torch.utils.checkpoint import checkpoint

class Saving(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.b(checkpoint(self.a, x, use_reentrant={reentrant}))

net = Saving()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for step in range(3):
    optimizer.zero_grad()
    loss = net(torch.ones(2, 4, requires_grad=True)).square().mean()
    loss.backward()
    optimizer.step()
    print(loss.item(), net.a.weight.sum().item())
"""
    for reentrant in (False, True):
        text = source.replace("{reentrant}", str(reentrant))
        result = run(text)
        assert result.process.steps == (0, 1, 2)
        assert [text[:18] for text in result.process.troubles] == ["the program trains"]
        weights = [result.values(step=step, op="a.t", side="in") for step in range(3)]
        assert not np.array_equal(weights[0], weights[1]) and not np.array_equal(weights[1], weights[2])
        assert result.text == plain(write_program(result.root / "plain", text)).stdout


def test_an_lstm_that_is_trained(run):
    source = """
class Last(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.lstm, self.head = nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 2)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])

net = Last()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
net.lstm.register_forward_hook(lambda module, given, made: print(made[0].double().sum().item()))
for step in range(2):
    optimizer.zero_grad()
    loss = net(torch.linspace(-1, 1, 48).reshape(2, 6, 4)).square().mean()
    loss.backward()
    optimizer.step()
    print(loss.item(), net.lstm.weight_hh_l0.grad.sum().item())
"""
    result = run(source)
    assert result.text == plain(write_program(result.root / "plain", source)).stdout
    sums = [float(line) for line in result.text.splitlines()[::2]]
    outputs = [result.values(step=step, op="lstm", side="out", slot=0) for step in range(2)]
    assert [output.astype(np.float64).sum() for output in outputs] == pytest.approx(sums, abs=0, rel=1e-12)
    inside = {line["module"] for line in result.lines(step=1) if line["id"].startswith("0_")}
    assert inside == {"root.lstm"} and result.process.troubles[0].startswith("the program trains: backward passes")


def test_threads_forks_and_spawned_workers_have_their_own_steps(run):
    result = run("""
import multiprocessing, os, threading, sys

def work(number):
    net = Net().eval()
    with torch.no_grad():
        for step in range(2):
            net(image() + number)

if __name__ == "__main__":
    work(0)
    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    for method in ("fork", "spawn"):
        workers = [multiprocessing.get_context(method).Process(target=work, args=(number,)) for number in (3, 4)]
        [worker.start() for worker in workers]
        [worker.join() for worker in workers]
    print("done")
""")
    assert result.text.split() == ["done"] and result.captured.complete
    assert sorted(process.steps for process in result.captured.processes) == [
        *[(0, 1)] * 4,
        (0, 1, 2, 3, 4, 5),
    ]
    per_step = {}
    for line in result.lines():
        if line["op"] == "_softmax" and line["side"] == "out":
            per_step.setdefault(line["file"].split("/")[1], []).append(line["step"])
    assert sorted(map(sorted, per_step.values())) == [*[[0, 1]] * 4, [0, 1, 2, 3, 4, 5]]
    inputs = {values_of(result.root / line["file"]).tobytes() for line in result.lines(op="stem", side="in")}
    assert len(inputs) == 5  # 0 to 4: no thread saw another's


def test_behind_a_bash_wrapper(run, tmp_path):
    program = write_program(tmp_path / "wrapped", ON_NET.format(made=KINDS["eager"]))
    script = tmp_path / "wrapped" / "run.sh"
    script.write_text(
        '#!/usr/bin/env bash\ncd "$(dirname "$0")"\n(python_of_test="$1"; "$1" program.py > printed.txt) &\nwait $!\n'
    )
    import sys

    result = run(program, argv=("bash", str(script), sys.executable), steps=Steps(((0, 0),)))
    assert result.captured.status == 0 and result.process.steps == (0,)
    assert (tmp_path / "wrapped" / "printed.txt").read_text() == plain(program).stdout


def test_a_program_that_crashes_half_way(run):
    source = """
class Crash(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(3, 3)

    def forward(self, x):
        return self.second(self.first(x))

net = Crash()
try:
    net(torch.ones(1, 4))
except RuntimeError as error:
    print("caught", str(error)[:20])
print(net.first(torch.ones(1, 4)).shape)
net(torch.ones(1, 4))
"""
    result = run(source)
    alone = plain(write_program(result.root / "plain", source))
    assert result.captured.status == alone.returncode == 1
    assert result.text == alone.stdout
    assert result.errors.splitlines()[-1] == alone.stderr.splitlines()[-1]
    assert "sgsdump" not in alone.stderr
    assert result.process.steps == (0, 1, 2)
    ended = [line["ended"] for line in result.every() if "ended" in line]
    assert ended == [False, True, False]
    # The operator that fails has left what it read; what stood around it has no outputs.
    failed = result.lines(step=2, id="1_1")
    assert [line["side"] for line in failed] == ["in"] * 3
    assert not result.lines(step=2, id="1", side="out") and result.lines(step=2, id="0", side="out")


def test_leaving_a_forward_in_any_way_ends_its_round(run):
    result = run("""
class Leaving(nn.Module):
    def forward(self, x):
        x = x + 1
        if x.sum() > 10:
            raise KeyboardInterrupt
        return x

class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Leaving()

    def forward(self, x):
        return self.inner(x)

net = Outer()
for value in (1, 100, 1):
    try:
        net(torch.full((2,), value))
    except KeyboardInterrupt:
        print("left")
torch.ones(2) + 1  # outside: of no step
""")
    assert result.text.split() == ["left"] and result.process.steps == (0, 1, 2)
    assert [line["id"] for line in result.lines(side="out", type="aten.add")] == ["0_0"] * 3


def test_a_seed_makes_two_runs_equal(run):
    source = """
import random
import numpy as np
net = nn.Sequential(nn.Linear(4, 4), nn.Dropout())
print(net(torch.rand(2, 4)).sum().item(), random.random(), np.random.rand())
print(torch.are_deterministic_algorithms_enabled())
"""
    first, second, other = (run(source, seed=seed) for seed in (2024, 2024, 7))
    assert first.text == second.text != other.text
    assert first.text.split()[-1] == "True"


def test_nothing_of_the_hook_reaches_the_program(run):
    """What a program may look at is as it was, and a mistake of the hook is told at the end only."""
    source = """
import inspect, pickle, copy
net = Net().eval()
assert inspect.signature(net.__call__) == inspect.signature(net._wrapped_call_impl)
assert not torch.nn.modules.module._has_any_global_hook()
modes = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
assert not modes, modes
again = pickle.loads(pickle.dumps(net))

class Odd(nn.Module):
    def forward(self, x, options):
        assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        return options

class Strange:
    @property
    def shape(self):
        raise RuntimeError("never to be seen")

odd = Strange()
assert Odd()(torch.ones(2, requires_grad=True), odd) is odd
with torch.device("meta"):
    Net()(torch.ones(2, 3, 8, 8))
x = torch.ones(3, requires_grad=True)
y = nn.Linear(3, 1, bias=False)(x)
y.backward()
print(x.grad is not None, again(image()).grad_fn is not None)
out = torch.func.vmap(nn.Linear(3, 2))(torch.ones(4, 3))
print(out.shape)
"""
    result = run(source)
    assert result.captured.status == 0, result.errors
    assert result.text.splitlines() == ["True True", "torch.Size([4, 2])"]
    assert not result.process.troubles


def test_a_program_without_modules_is_told_so(run):
    result = run("print((torch.ones(2) + 1).tolist())")
    assert result.text.split() == ["[2.0,", "2.0]"]
    assert not result.captured.processes or not result.process.counts.tensors
    assert any(
        "ran nothing that is selected for the dump: no module was called" in note for note in result.captured.notes
    )


def test_one_step_of_training_is_told_at_the_end(run):
    source = "net = Net()\nnet(image()).sum().backward()\n{}"
    assert [text[:18] for text in run(source.format("")).process.troubles] == ["the program trains"]
    assert not run("Net()(image())").process.troubles


@pytest.mark.filterwarnings("ignore")
def test_what_torch_runs_to_quantise_a_network_is_no_step(run):
    result = run("""
import warnings
warnings.simplefilter("ignore")
net = torch.ao.quantization.quantize_dynamic(Net().eval(), {nn.Linear})
with torch.no_grad():
    net(image())
""")
    assert result.process.steps == (0,) and result.process.begun == 1
    assert "stem" in {line["op"] for line in result.lines()}


def test_the_hook_alone_imports_nothing_slow(tmp_path, run):
    result = run("""
import sys
net = Net().eval()
with torch.no_grad():
    net(image())
print("torch._dynamo" in sys.modules, "numpy.testing" in sys.modules, "onnx" in sys.modules)
""")
    assert result.text.split() == ["False"] * 3


@pytest.mark.parametrize("grad", ["torch.no_grad()", "torch.enable_grad()"])
@pytest.mark.parametrize(
    "made, inside",
    [
        ("torch.cond(x.sum() > 0, lambda x: torch.relu(self.a(x)), lambda x: torch.tanh(self.b(x)), (x,))", 1),
        (
            "torch._higher_order_ops.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, torch.tanh(self.a(x))), "
            "(torch.tensor(0), x))[1]",
            3,
        ),
    ],
    ids=["cond", "while_loop"],
)
def test_branches_and_loops_of_torch_run_as_before_with_their_operators(run, tmp_path, grad, made, inside):
    """torch compiles these itself when they run; it must not compile the hook, and says nothing of torch.compile."""
    program = f"""
import torch

class Branch(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return {made}

torch.manual_seed(0)
net, x = Branch(), torch.ones(2, 4)
with {grad}:
    for step in range(2):
        print(net(x * (1 - 2 * step)).sum().item())
"""
    result = run(program, steps=Steps(((0, 1),)))
    assert result.text == plain(write_program(tmp_path, program)).stdout and result.captured.status == 0
    assert not any("torch.compile" in note for note in result.captured.notes)
    ran = [line for line in result.every() if line.get("event") == "operator"]
    assert len([line for line in ran if line["type"] == "aten.addmm" and line["step"] == 0]) == inside
    assert {line["step"] for line in ran if line["type"].startswith("higher_order.")} == {0, 1}


TRAINING = """
def main():
    net, x = nn.Linear(3, 1), torch.ones(2, 3)
    for _ in range(2):
        net.zero_grad()
        {}

if __name__ == "__main__":
    {}
"""


@pytest.mark.parametrize(
    ("step", "call", "trains"),
    [
        ("net(x).sum().backward()", "main()", True),
        ("net(x).sum().backward(); net.zero_grad()", "torch.multiprocessing.spawn(lambda_of, nprocs=1)", True),
        ("torch.autograd.backward([net(x).sum()])", "main()", True),
        ("torch.optim.SGD(net.parameters(), 1.0).step(lambda: net(x).sum().backward())", "main()", True),
        ("net(x); nn.Linear(1, 1).weight.sum().backward()", "main()", False),  # of no network that was dumped
        ("net(x)", "main()", False),
    ],
)
def test_a_program_is_known_to_train_by_its_backward_passes(run, step, call, trains):
    """Its network is gone when it ends, and its gradients may be gone whenever the network runs."""
    source = "def lambda_of(rank):\n    main()\n" + TRAINING.format(step, call)
    troubles = [text[:18] for process in run(source).captured.processes for text in process.troubles]
    assert troubles == ["the program trains"] * trains
