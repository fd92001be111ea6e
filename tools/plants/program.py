"""The program that the plants of group ``programs`` run: a small net of units, with or without a fault in one of them.

    python program.py SPEC.json TOOL OUTPUT

SPEC has the kinds of the units, the fault (``{"unit", "kind", "value"}`` or null) and what else differs: the type of
the whole net (``dtype``), ``autocast``, ``int8`` weights (``wide``: the same in float), ``dynamic`` (linear layers
quantised by torch), ``rewritten`` (``rewritten.py``), ``threads``, ``channels_last``, ``compiled``; or a ``net`` of
``nets.py``. A list of them runs one after another, a round each. TOOL is
exec (nothing is done here: sgsdump exec starts it), register_hook, torchair or msprobe; for the last one the program
writes what msprobe would, level mix, as that package runs on the card's machine alone.
"""

import json
import sys
import traceback
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

THREADS = torch.get_num_threads()


class Scale(nn.Module):
    def __init__(self, factor=0.5):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


class Slope(nn.Module):
    def __init__(self, slope=0.01):
        super().__init__()
        self.slope = slope

    def forward(self, x):
        return functional.leaky_relu(x, self.slope)


class Softmax(nn.Module):
    def __init__(self, dim=-1):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return functional.softmax(x, self.dim) + x


class Turn(nn.Module):
    def __init__(self, axes=(1, 2)):
        super().__init__()
        self.axes = axes

    def forward(self, x):
        if x.ndim == 3:  # tokens of 4 heads with 4 values each
            x = x.reshape(*x.shape[:2], 4, 4)
        turned = x.transpose(*self.axes) if self.axes else x
        return turned.reshape(turned.shape[0], 4, 16) if turned.shape[1:] == (4, 4, 4) else turned.contiguous()


class Grow(nn.Module):
    """Writes into its input."""

    def __init__(self, factor=1.5):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        y = x.clone()
        y.mul_(self.factor)
        return y


class Root(nn.Module):
    """A root mean square normalisation of single operators, in float32."""

    def __init__(self, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.rand(16) + 0.5), eps

    def forward(self, x):
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, theta=10000.0):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(16, 16, bias=False) for _ in range(3))
        self.theta, self.scale = theta, None

    def forward(self, x):
        q, k, v = (side(x).view(2, 4, 2, 8).transpose(1, 2) for side in (self.q, self.k, self.v))
        q, k = self.turned(q, k)
        y = functional.scaled_dot_product_attention(q, k.to(q.dtype), v.to(q.dtype), is_causal=True, scale=self.scale)
        return x + y.transpose(1, 2).reshape(2, 4, 16)

    def turned(self, q, k):
        angle = torch.arange(4.0)[:, None] / self.theta ** (torch.arange(0.0, 8, 2) / 8)
        cos, sin = (torch.cat([turn, turn], -1).to(q.dtype) for turn in (angle.cos(), angle.sin()))
        return (side * cos + torch.cat([-side[..., 4:], side[..., :4]], -1) * sin for side in (q, k))


class Cache(nn.Module):
    """Two halves of a buffer, written one after another, as a cache of keys is."""

    def __init__(self):
        super().__init__()
        self.skips, self.at = False, 0

    def forward(self, x):
        size = x.shape[1]
        buffer = x.new_zeros(x.shape[0], 2 * size, *x.shape[2:])
        buffer[:, :size].copy_(x)
        if not self.skips:
            buffer[:, size + self.at :].copy_((x * 0.5)[:, self.at :])
        return buffer[:, :size] + buffer[:, size:]


class Part(nn.Module):
    """Writes into a part of what it returns."""

    def __init__(self, factor=1.5, more=1.0):
        super().__init__()
        self.factor, self.more = factor, more

    def forward(self, x):
        y = x.clone()
        y[:, ::2].mul_(self.factor)
        if self.more is not None:
            y[0] += self.more
        return y


class Int8(nn.Module):
    """A linear layer whose weight is stored in 8 bits, with a scale for each output."""

    wide = False

    def __init__(self):
        super().__init__()
        weight = nn.Linear(16, 16).weight.detach()
        if self.wide:
            self.weight = nn.Parameter(weight)
            return
        scale = weight.abs().amax(1, keepdim=True) / 127
        self.register_buffer("weight", (weight / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)

    def forward(self, x):
        if self.weight.dtype != torch.int8:
            return functional.linear(x, self.weight)
        return functional.linear(x, self.weight.to(x.dtype) * self.scale.to(x.dtype))


MADE = {
    "root": Root,
    "attention": Attention,
    "cache": Cache,
    "part": Part,
    "int8": Int8,
    "conv": lambda: nn.Conv2d(8, 8, 3, padding=1),
    "batch_norm": lambda: nn.BatchNorm2d(8),
    "group_norm": lambda: nn.GroupNorm(2, 8),
    "linear": lambda: nn.Linear(16, 16),
    "layer_norm": lambda: nn.LayerNorm(16),
    "gelu": nn.GELU,
    "scale": Scale,
    "slope": Slope,
    "softmax": Softmax,
    "turn": Turn,
    "grow": Grow,
}


class Unit(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner, self.type = inner, None

    def forward(self, x):
        return self.inner(x) if self.type is None else self.inner(x.to(self.type)).to(x.dtype)


class Net(nn.Module):
    def __init__(self, kinds):
        super().__init__()
        self.units = nn.ModuleList(Unit(MADE[kind]()) for kind in kinds)

    def forward(self, x):
        for unit in self.units:
            x = unit(x)
        return x


def planted(net, fault):
    unit = net.units[fault["unit"]]
    kind, value = fault["kind"], fault["value"]
    with torch.no_grad():
        if kind == "weight":
            weight = getattr(unit.inner, value["name"])
            flat = weight.view(-1)
            if value["element"] is None and flat.dtype == torch.int8:
                flat.copy_(flat.flip(0))
            elif value["element"] is None:
                flat.mul_(value["factor"])
            elif flat.dtype == torch.int8:
                flat[value["element"] % flat.numel()].add_(40)
            else:
                flat[value["element"] % flat.numel()] += 0.3 * value["factor"]
        elif kind == "scalar":
            setattr(unit.inner, value["name"], value["value"])
        elif kind == "dtype":
            unit.type = getattr(torch, value)
            unit.inner.to(unit.type)
        elif kind == "transpose":
            unit.inner.axes = value


def made(spec):
    """The net of a specification and its input."""
    torch.manual_seed(spec["seed"])
    if "net" in spec:
        import nets

        net, x, _ = nets.made(spec)
        if spec.get("channels_last") and spec["net"] == "unet":
            net = net.to(memory_format=torch.channels_last)
        return (torch.compile(net, backend="aot_eager") if spec.get("compiled") else net), x
    Int8.wide = spec.get("wide", False)
    net = Net(spec["kinds"]).eval()
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_var.uniform_(0.05, 2)
                module.running_mean.normal_()
            if isinstance(module, (nn.BatchNorm2d, nn.GroupNorm, nn.LayerNorm)):
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_()
    x = torch.randn(2, 8, 8, 8) if "conv" in spec["kinds"] else torch.randn(2, 4, 16)
    if spec["fault"]:
        planted(net, spec["fault"])
    if spec.get("dynamic"):
        net = torch.ao.quantization.quantize_dynamic(net, {nn.Linear}, dtype=torch.qint8)
    if spec.get("rewritten"):
        import rewritten

        rewritten.rewrite(net, spec["rewritten"])
    if spec.get("dtype"):
        net, x = net.to(getattr(torch, spec["dtype"])), x.to(getattr(torch, spec["dtype"]))
    if spec.get("channels_last") and x.ndim == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    if spec.get("compiled"):
        net = torch.compile(net, backend="aot_eager")
    return net, x


def main(spec, tool, output):
    if isinstance(spec, list):
        for each in spec:
            main(each, tool, output)
        return
    torch.set_num_threads(spec.get("threads", THREADS))
    net, x = made(spec)
    output.mkdir(exist_ok=True)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=spec.get("autocast", False)):
        if tool == "register_hook":
            from sgsdump.capture.msit import DumpConfig, register_hook

            register_hook(net, DumpConfig(dump_path=str(output)))
        if tool == "torchair":
            import sgsdump.capture.torchair as torchair

            config = torchair.CompilerConfig()
            config.dump_config.enable_dump = True
            config.dump_config.dump_path = str(output)
            net = torch.compile(net, backend=torchair.get_npu_backend(compiler_config=config))
        if tool == "msprobe":
            Recorder(net, output).run(x)
        else:
            net(x)


class Recorder(torch.overrides.TorchFunctionMode):
    """dump.json, construct.json, stack.json and the values, as msprobe lays them out."""

    def __init__(self, net, output):
        super().__init__()
        self.net, self.output, self.inside, self.calls = net, output, [], {}
        self.data, self.construct, self.stack = {}, {}, {}
        (output / "dump_tensor_data").mkdir()
        for name, module in net.named_modules():
            if name:
                called = f"Module.{name}.{type(module).__name__}.forward.0"
                module.register_forward_pre_hook(lambda _m, _i, called=called: self.inside.append(called))
                module.register_forward_hook(lambda m, i, o, called=called: self.left(m, i, o, called))

    def run(self, x):
        with self:
            self.net(x)
        head = {"task": "tensor", "level": "mix", "framework": "pytorch", "dump_data_dir": str(self.output)}
        for name, content in (
            ("dump", {**head, "data": self.data}),
            ("construct", self.construct),
            ("stack", self.stack),
        ):
            (self.output / f"{name}.json").write_text(json.dumps(content))

    def left(self, module, inputs, output, called):
        self.inside.pop()
        own = dict(module.named_parameters(recurse=False))
        with torch._C.DisableTorchFunction():
            self.entry(called, inputs, {}, output, own)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        result = function(*args, **(kwargs or {}))
        if name in ("__get__", "__set__") or not isinstance(result, torch.Tensor):
            return result
        number = self.calls[name] = self.calls.get(name, -1) + 1
        with torch._C.DisableTorchFunction():
            self.entry(f"Functional.{name}.{number}.forward", args, kwargs or {}, result)
        return result

    def entry(self, called, args, kwargs, output, parameters=None):
        described = {
            "input_args": [self.facts(a, f"{called}.input.{i}") for i, a in enumerate(args)],
            "input_kwargs": {k: self.facts(v, f"{called}.input.{k}") for k, v in kwargs.items()},
        }
        if parameters:
            described["parameters"] = {k: self.facts(v, f"{called}.parameters.{k}") for k, v in parameters.items()}
        described["output"] = [self.facts(output, f"{called}.output.0")]
        self.data[called] = described
        self.construct[called] = self.inside[-1] if self.inside else None
        lines = [f for f in reversed(traceback.extract_stack()) if f.name == "forward"]
        self.stack[called] = [f"File {f.filename}, line {f.lineno}, in {f.name}, \n {f.line}" for f in lines]

    def facts(self, value, name):
        if not isinstance(value, torch.Tensor):
            if isinstance(value, torch.dtype):
                return {"type": "torch.dtype", "value": str(value)}
            if isinstance(value, (list, tuple)):
                return [self.facts(v, f"{name}.{i}") for i, v in enumerate(value)]
            return {"type": type(value).__name__, "value": value} if value is not None else None
        import numpy as np

        # as msprobe does, what numpy lacks is kept as float32
        values = value.detach().float() if value.dtype == torch.bfloat16 else value.detach()
        np.save(self.output / "dump_tensor_data" / f"{name}.npy", values.contiguous().numpy())
        numbers = values.double()
        summary = {"Max": numbers.max(), "Min": numbers.min(), "Mean": numbers.mean(), "Norm": numbers.norm()}
        facts = {"type": "torch.Tensor", "dtype": str(value.dtype), "shape": list(value.shape)}
        return {**facts, **{k: float(v) for k, v in summary.items()}, "data_name": f"{name}.npy"}


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()), sys.argv[2], Path(sys.argv[3]))
