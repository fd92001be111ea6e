"""``register_hook`` dumps what an independent hook sees, and leaves the program's results as they are."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="what is dumped here is a torch program")

from capture.msit.decoder import Decoder, generate, made  # noqa: E402

from sgsdump import list_runs, open_dump  # noqa: E402
from sgsdump.capture.msit import DumpConfig, register_hook  # noqa: E402
from sgsdump.capture.programs.control import DumpControl, Steps  # noqa: E402
from sgsdump.cli import main  # noqa: E402
from sgsdump.errors import ConfigError, MissingExtra  # noqa: E402

HERE = Path(__file__).parent


def watched(model) -> list[dict[str, np.ndarray]]:
    """What a plain hook on every module sees in each token, copied at once; filled while the model runs."""
    tokens: list[dict[str, np.ndarray]] = []

    def flat(value, name):
        if isinstance(value, torch.Tensor):
            tokens[-1][name] = value.detach().clone().numpy()
        elif isinstance(value, (tuple, list)):
            for number, one in enumerate(value):
                flat(one, f"{name}_{number}")
        elif isinstance(value, dict):
            for key, one in value.items():
                flat(one, f"{name}_{key}")

    def hook(name, module):
        def before(_, arguments, keywords):
            if module is model:
                tokens.append({})
            flat(arguments, f"{name}/input")
            flat(keywords, f"{name}/input")

        module.register_forward_pre_hook(before, with_kwargs=True)
        module.register_forward_hook(lambda _, __, output: flat(output, f"{name}/output"))

    for name, module in model.named_modules():
        hook(f"root.{name}" if name else "root", module)
    return tokens


def dumped(folder: Path, step: int) -> dict[str, np.ndarray]:
    return {record.name: record.tensor.stored() for record in open_dump(folder, step).records}


def test_every_token_is_what_an_independent_hook_sees(tmp_path: Path) -> None:
    model = made()
    tokens = watched(model)
    plain = generate(made())
    register_hook(model, DumpConfig(dump_path=str(tmp_path), token_range=[0, 1, 2, 3, 4]))
    assert generate(model) == plain
    assert [run.step for run in list_runs(tmp_path)] == [0, 1, 2, 3, 4]
    for step, expected in enumerate(tokens):
        found = dumped(tmp_path, step)
        assert found.keys() == expected.keys() and len(found) > 60
        for name, array in expected.items():
            assert np.array_equal(found[name], array), (step, name)
    assert not open_dump(tmp_path, 1).notes


def test_files_are_where_msit_has_them_and_torch_loads_them(tmp_path: Path) -> None:
    model = made()
    hook = register_hook(model, DumpConfig(dump_path=str(tmp_path), dump_weight=True))
    generate(model)
    (folder,) = tmp_path.glob("msit_dump_*/torch_tensors/*")
    assert folder == hook.folder and folder.name == f"cpu_{os.getpid()}"
    assert sorted(path.name for path in folder.iterdir()) == ["0", "model_tree.json", "weights"]
    assert (folder / "0/root.layers.1.attention.q/input_0.pth").is_file()
    assert (folder / "0/root.layers.1.attention/output_1_0.pth").is_file()
    weight = torch.load(folder / "weights/root.layers.1.attention.q.weight.pth", weights_only=True)
    assert torch.equal(weight, model.layers[1].attention.q.weight)
    tree = json.loads((folder / "model_tree.json").read_text())
    assert (tree["name"], tree["type"]) == ("root", "Decoder")
    assert [one["name"] for one in tree["children"]] == ["root.embed", "root.layers", "root.head"]
    inner = tree["children"][1]["children"][0]["children"][1]
    assert inner["type"] == "Attention" and [c["name"][-1] for c in inner["children"]] == ["k", "v", "q", "o"]


def test_the_defaults_are_msits() -> None:
    """The first token, every module, both sides, whole values; no weights, no seed."""
    config = DumpConfig()
    assert config.control == DumpControl(steps=Steps(((0, 0),)))
    assert config.kinds == ("module",) and config.keeps_values and not config.keeps_statistics
    assert not (config.dump_weight or config.dump_last_logits or config.module_list or config.api_list)


def test_only_what_is_asked_for(tmp_path: Path) -> None:
    def names(**config) -> set[str]:
        model, path = made(), tmp_path / str(len(list(tmp_path.iterdir())))
        register_hook(model, DumpConfig(dump_path=str(path), **config))
        generate(model)
        return set(open_dump(path))

    some = names(layer_name="root.layers.0*")
    assert some and all(name.startswith("root.layers.0") for name in some)
    assert {name.partition("/")[2] for name in names(layer_name="*.q", tensor_part=0)} == {"input_0"}
    assert {name.partition("/")[2] for name in names(layer_name="*.q", tensor_part=1)} == {"output"}
    assert {name.partition("/")[0].rpartition(".")[2] for name in names(module_list=[torch.nn.LayerNorm])} == {"norm"}
    assert names(dump_last_logits=True) == {"root.head/output"}
    called = {name.partition("/")[0] for name in names(mode="api", api_list=[torch.nn.functional.softmax, "cat"])}
    assert called == {"root.layers.0.attention.softmax", "root.layers.1.attention.softmax"}
    assert {"root.head/output", "root.head.linear/output"} <= names(mode=["module", "api"])


def test_functions_are_dumped_with_their_inputs_and_the_second_call_beside_the_first(tmp_path: Path) -> None:
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(3, 3)

        def forward(self, x):
            return self.fc(torch.relu_(self.fc(x).add_(1))) + torch.relu(x)

    model, x = Twice(), torch.randn(2, 3)
    before = x.clone()
    register_hook(model, DumpConfig(dump_path=str(tmp_path), mode=["api", "module"]))
    with torch.no_grad():
        model(x)
        inner = torch.nn.functional.linear(before, model.fc.weight, model.fc.bias)
    found = dumped(tmp_path, 0)
    assert np.array_equal(found["root.fc/output"], inner.numpy())
    assert np.array_equal(found["root.add_/input_0"], inner.numpy())
    assert np.array_equal(found["root.relu_/input_0"], (inner + 1).numpy())
    assert np.array_equal(found["root.fc@1/input_0"], (inner + 1).relu().numpy())
    assert np.array_equal(found["root.relu/output"], before.relu().numpy())
    assert "root.fc.linear.1/output" in found


@pytest.mark.parametrize("mode", [1, 2])
def test_statistics_are_torchs(mode: int, tmp_path: Path) -> None:
    model = made()
    tokens = watched(model)
    register_hook(model, DumpConfig(dump_path=str(tmp_path), dump_statistics_mode=mode))
    generate(model)
    (index,) = tmp_path.rglob("index.jsonl")
    told = [json.loads(line) for line in index.read_text().splitlines()][:-1]
    lines = [line for line in told if "event" not in line]
    assert len(list(tmp_path.rglob("*.pth"))) == (0 if mode == 1 else len(lines))
    for line in lines:
        array = tokens[0][line["name"]].astype(np.float64)
        expected = [array.max(), array.min(), array.mean(), np.sqrt((array**2).sum())]
        np.testing.assert_allclose(list(line["stats"].values()), expected, rtol=1e-12)
    if mode == 1:
        record = open_dump(tmp_path)["root.head/output"]
        assert record.statistics.max == tokens[0]["root.head/output"].max() and record.shape == (1, 2, 50)


def test_a_seed_makes_runs_equal_and_deterministic(tmp_path: Path) -> None:
    class Noise(torch.nn.Module):
        def forward(self, x):
            return x + torch.rand(3) + float(np.random.rand())

    try:
        for name in ("a", "b"):
            model = Noise()
            register_hook(model, DumpConfig(dump_path=str(tmp_path / name), seed=5))
            assert torch.are_deterministic_algorithms_enabled()
            model(torch.zeros(3))
    finally:
        torch.use_deterministic_algorithms(False)
    assert np.array_equal(dumped(tmp_path / "a", 0)["root/output"], dumped(tmp_path / "b", 0)["root/output"])


def test_views_are_saved_without_the_rest_of_their_storage(tmp_path: Path) -> None:
    class Last(torch.nn.Module):
        def forward(self, x):
            return x[:, -1]

    model = Last()
    register_hook(model, DumpConfig(dump_path=str(tmp_path), tensor_part=1))
    x = torch.randn(3, 100_000, dtype=torch.complex64).conj()
    model(x)
    assert np.array_equal(dumped(tmp_path, 0)["root/output"], x[:, -1].resolve_conj().numpy())
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.pth")) < 10_000


def test_a_token_that_raises_is_not_complete_and_the_next_is(tmp_path: Path) -> None:
    model = made()
    register_hook(model, DumpConfig(dump_path=str(tmp_path), token_range=[0, 1]))
    with pytest.raises(IndexError):
        model(torch.tensor([[999]]))
    model(torch.tensor([[1]]))
    broken, whole = (open_dump(tmp_path, step) for step in (0, 1))
    assert list(broken) == ["root/input_0", "root.embed/input_0"]
    assert "not complete" in broken.notes[0] and not whole.notes


def test_compiled_scripted_and_exported_models_keep_their_results(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)).eval()
    x = torch.randn(3, 4)
    expected = net(x).detach()
    register_hook(net, DumpConfig(dump_path=str(tmp_path / "compiled")))
    compiled = torch.compile(net, backend="eager")
    assert torch.equal(compiled(x), expected)
    assert np.array_equal(dumped(tmp_path / "compiled", 0)["root.1/output"], net[1](net[0](x)).detach().numpy())
    graph = torch.export.export(torch.nn.Sequential(torch.nn.Linear(4, 2)), (x,)).module()
    register_hook(graph, DumpConfig(dump_path=str(tmp_path / "exported"), mode="api"))
    result = graph(x)
    assert np.array_equal(dumped(tmp_path / "exported", 0)["root.linear/output"], result.detach().numpy())


def test_modules_that_run_no_hooks_are_told(tmp_path: Path) -> None:
    net, x = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), torch.randn(3, 4)
    for made_of in (torch.jit.script(net), torch.jit.trace(net, x)):
        with pytest.raises(ConfigError, match="pass the original module"):
            register_hook(made_of, DumpConfig(dump_path=str(tmp_path)))
    whole = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.jit.script(net))
    with pytest.warns(UserWarning, match=r"root.1 and 2 more is scripted"):
        register_hook(whole, DumpConfig(dump_path=str(tmp_path)))
    whole(x)
    assert list(open_dump(tmp_path)) == ["root/input_0", "root.0/input_0", "root.0/output", "root/output"]


def test_eager_is_compared_with_compiled_and_the_first_operator_that_differs_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = []

    def change_in_the_third_run(_module, _arguments, output):
        runs.append(output)
        return output + 0.05 if len(runs) == 3 else None

    for name in ("eager", "compiled", "changed"):
        model = made()
        if name == "changed":
            model.layers[1].up.register_forward_hook(change_in_the_third_run)
        register_hook(model, DumpConfig(dump_path=str(tmp_path / name), token_range=[0, 1, 2, 3]))
        generate(torch.compile(model, backend="aot_eager") if name == "compiled" else model)
    assert main(["compare", str(tmp_path / "compiled"), str(tmp_path / "eager")]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("Runs compared: 4; different: 0")
    assert main(["compare", str(tmp_path / "changed"), str(tmp_path / "eager"), "--max-rmse", "0.01"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[-2] == "Runs compared: 4; different: 1."
    assert "step 2: " in said[-1] and "first root.layers.1.up/output (Linear) in layers.1.up, output RMSE" in said[-1]
    assert "all inputs are equal in both dumps (root.layers.1.up/input_0); the operator's own error" in said[-1]


def test_torch_is_compared_with_the_same_net_in_onnxruntime(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import onnx
    from onnx import helper, numpy_helper

    net, x = (
        torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).eval(),
        torch.randn(3, 4),
    )
    register_hook(net, DumpConfig(dump_path=str(tmp_path / "torch"), tensor_part=1))
    net(x)
    weights = [numpy_helper.from_array(p.detach().numpy(), n) for n, p in net.named_parameters()]
    nodes = [
        helper.make_node("Gemm", ["x", "0.weight", "0.bias"], ["/0/Gemm_output_0"], transB=1),
        helper.make_node("Relu", ["/0/Gemm_output_0"], ["/1/Relu_output_0"]),
        helper.make_node("Gemm", ["/1/Relu_output_0", "2.weight", "2.bias"], ["y"], transB=1),
    ]
    ends = [helper.make_tensor_value_info(name, 1, [3, size]) for name, size in (("x", 4), ("y", 2))]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], weights)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "net.onnx"
    )
    np.save(tmp_path / "x.npy", x.numpy())
    words = ["-m", str(tmp_path / "net.onnx"), "-i", str(tmp_path / "x.npy"), "-o", str(tmp_path / "ort.npz")]
    assert main(["dump", *words]) == 0
    capsys.readouterr()
    status = main(
        ["compare", str(tmp_path / "ort.npz"), str(tmp_path / "torch"), "--match-by-value", "--max-rmse", "1e-5"]
    )
    out = capsys.readouterr().out
    assert status == 0 and "Compared: 3 of" in out, out


@pytest.mark.usefixtures("two_gib_are_left")
def test_a_full_disk_ends_the_dump_and_not_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, plain = made(), generate(made())
    register_hook(model, DumpConfig(dump_path=str(tmp_path), token_range=list(range(9))))
    usage = shutil.disk_usage(tmp_path)._replace(free=5 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.warns(UserWarning, match="Disk space is not enough, it's must more than 2G, free size.MB. is: 5"):
        assert generate(model) == plain
    assert not list(tmp_path.rglob("*.pth"))


def test_a_removed_hook_is_gone(tmp_path: Path) -> None:
    model = made()
    hook = register_hook(model, DumpConfig(dump_path=str(tmp_path), mode=["module", "api"]))
    hook.remove()
    generate(model)
    assert not list(tmp_path.rglob("*.pth")) and not any(m._forward_hooks for m in model.modules())


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"token_range": 3}, "token_range must be a list of token numbers"),
        ({"token_range": [-1]}, "token_range"),
        ({"tensor_part": 3}, "tensor_part must be 0, 1 or 2, not 3"),
        ({"mode": "modul"}, "mode must be module, api"),
        ({"module_list": ["Linear"]}, "module_list must be a list of module classes"),
        ({"seed": -1}, "seed must be an integer"),
        ({"device_id": "0"}, "device_id must be a device number"),
        ({"layer_name": "root.layer.0*"}, "no module is named 'root.layer.0.'; did you mean 'root.layers.0'"),
        ({"module_list": [torch.nn.Conv2d]}, "no module is an instance of Conv2d"),
    ],
)
def test_what_cannot_be_is_told_before_the_model_runs(config, told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=told):
        register_hook(Decoder(), DumpConfig(dump_path=str(tmp_path / "out"), **config))
    assert not (tmp_path / "out").exists()


def test_other_things_than_a_model_and_a_config_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"takes a torch.nn.Module, not a function"):
        register_hook(made, DumpConfig())
    with pytest.raises(ConfigError, match="takes a DumpConfig, not a dict"):
        register_hook(made(), {})
    with pytest.raises(ConfigError, match="unknown hook type 'overflow'"):
        register_hook(made(), DumpConfig(), "overflow")
    with pytest.warns(UserWarning, match="the model is on meta, device_id is 1"):
        register_hook(made().to("meta"), DumpConfig(dump_path=str(tmp_path), device_id=1))
    assert not list(tmp_path.iterdir())
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra):
        register_hook(None, DumpConfig())


PROGRAM = """
import os, random, signal, sys, time
sys.path.insert(0, {here!r})
import torch
torch.set_num_threads(1)
from decoder import generate, made
from sgsdump.capture.msit import DumpConfig, register_hook

warm = made()
register_hook(warm, DumpConfig(dump_path="warm"))
generate(warm)
for number in range(20):
    child = os.fork()
    if not child:
        model = made()
        register_hook(model, DumpConfig(dump_path=str(number), token_range=list(range(1000))))
        if number == 0:  # for certain within a token
            model.layers[1].act.register_forward_hook(lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        generate(model, 1000)
        os._exit(0)
    while not os.path.isdir(str(number)):
        time.sleep(0.001)
    time.sleep(random.Random(number).random() * 0.3)
    if number:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


def test_a_program_killed_at_any_moment_leaves_whole_tensors_and_a_tree_that_opens(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.format(here=str(HERE)))
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
    subprocess.run([sys.executable, "program.py"], cwd=tmp_path, env=environment, check=True, timeout=300)
    notes = open_dump(tmp_path / "0").notes
    assert any("not complete" in note for note in notes) and "root.layers.1.up/output" in open_dump(tmp_path / "0")
    counts = []
    for number in range(20):
        tensors = list((tmp_path / str(number)).rglob("*.pth"))
        runs = list_runs(tmp_path / str(number)) if tensors else []
        for run in runs:
            if not list((tmp_path / str(number) / run.place).rglob("*.pth")):
                continue  # it had only begun
            dump = open_dump(tmp_path / str(number), run.step)
            assert all(record.tensor.stored() is not None for record in dump.records)
            unfinished = any("not complete" in note for note in dump.notes)
            assert unfinished or len(dump.records) > 60
            assert not unfinished or run == runs[-1]
        counts.append(len(tensors))
    assert len({count for count in counts if count}) > 3, counts


def test_warnings_of_analyze_and_nothing_else(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="show TREE --csv"):
        DumpConfig(analyze=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DumpConfig(dump_path=str(tmp_path), token_range=range(3))


class Odd(torch.nn.Module):
    """Hands tensors without memory of their own to a module."""

    def __init__(self):
        super().__init__()
        self.fc, self.same = torch.nn.Linear(4, 4), torch.nn.Identity()

    def forward(self, x):
        from torch.masked import masked_tensor

        y, tangent = torch.func.jvp(lambda v: self.same(v) * 2, (x,), (torch.ones_like(x),))
        mapped = torch.func.vmap(self.fc)(x)
        self.same(masked_tensor(x, x > 0))
        self.same(torch._efficientzerotensor(4))
        for layout in (torch.jagged, torch.strided):
            self.same(self.fc(torch.nested.nested_tensor([x, x[:2]], layout=layout)))
        return self.fc(y + tangent + mapped)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", [["module"], ["module", "api"]])
def test_tensors_without_memory_are_left_out_alone(tmp_path: Path, mode: list[str]) -> None:
    torch.manual_seed(0)
    model, x = Odd(), torch.randn(4, 4)
    expected = model(x)
    register_hook(model, DumpConfig(dump_path=str(tmp_path), mode=mode, dump_statistics_mode=2))
    assert torch.equal(model(x), expected)
    dump = open_dump(tmp_path)
    assert np.array_equal(dump["root/output"].stored(), expected.detach().numpy())
    told = " ".join(dump.notes)
    for what in ("MaskedTensor", "NestedTensor", "a nested tensor has no shape", "without memory", "torch.func"):
        assert what in told, told
    assert "not complete" not in told
