"""The compiled kernel tells of ordinary operators what Python tells of them: the same lines in the same order."""

import json

import pytest
from torch_runs import runner

from sgsdump.capture.programs.process_index import lines_of

pytest.importorskip("torch", reason="torch (the extra torch) is not installed")

# Eight rounds of the same, the kernel in the first four: whatever is written to, shared, unusual or not what it was.
ODD = """
import sys
import torch.nn.functional as F

class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.square = nn.Linear(16, 16, bias=False)
        self.scale = nn.Parameter(torch.ones(16))

    def forward(self, x, more=None):
        y = self.square(x) * self.scale
        return {"y": y, "list": [y.view(-1), y.t()], "n": 3} if more is None else (y + more, None)

class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.wide, self.past = Inner(), nn.Linear(16, 4096), None
        self.register_buffer("cache", torch.zeros(4, 16))

    def forward(self, x):
        y = self.inner(x)["y"]
        y, _ = self.inner(y, more=x)
        self.past = y if self.past is None else torch.cat((self.past, y), 0)
        a, b = y.chunk(2, -1)
        y = torch.cat((-b, a), -1)
        y = y.t().contiguous().t() + self.past[-4:]
        y.add_(1)
        y[:, 0] = 0.5
        seen = y.detach()
        y.data.mul_(2)
        self.cache[1:3] = y[1:3]
        z = y.expand(3, 4, 16).transpose(1, 2)
        z = z @ z.transpose(1, 2)
        z = z.masked_fill(z > z.mean(), float("-inf")).softmax(-1)
        w = F.scaled_dot_product_attention(y[None], y[None], y[None])
        top = w.topk(3)
        w = w.to(torch.float64).to(torch.bfloat16) + y.half().unsqueeze(0).unbind(0)[0].bfloat16()
        blank = torch.empty(4, 16)
        blank.copy_(seen)
        c = torch.view_as_complex(y.reshape(4, 8, 2).contiguous()).conj().imag
        try:
            y @ y
        except RuntimeError:
            pass
        y.numpy()[0, 0] = 7
        none = y[:0] * 2
        f = torch.func.vmap(lambda row: row * 2)(y)
        self.wide(y)
        i = torch.arange(5, dtype=torch.int64)[None] + top.indices.sum()
        nan = (y - float("inf")) * 0
        big = (y.float() * 1e30).double() * 1e300
        return y * c.sum() + blank + f, w, {"nan": nan.sum(), "big": big, "i": i, "none": none, "cache": self.cache}

def four():
    net = Odd().eval()
    for number in range(4):
        x = torch.linspace(-1, 1, 64).view(4, 16)
        with torch.inference_mode() if number == 3 else torch.no_grad():
            net(x)
        with torch.no_grad():
            if number == 0:
                net.inner.scale.mul_(2)
            if number == 1:
                net.inner.square.weight.data = torch.eye(16)

with torch.no_grad():
    four()
    ordinary = sys.modules["sgsdump_torch_ordinary"]
    if ordinary.kernel is None:
        print("not built")
    ordinary.kernel = None
    four()
"""


def without_numbers(lines):
    """The lines of several rounds, in which values are counted in the order in which they come, and steps from 0."""
    numbers: dict[int, int] = {}
    first = min(line["step"] for line in lines)
    told = []
    for line in lines:
        line = json.loads(json.dumps(line))
        line["step"] -= first
        for key in ("nanoseconds", "of_model", "fed"):
            line.pop(key, None)
        for key in ("value", "parts", "inputs", "outputs"):
            if isinstance(line.get(key), list):
                line[key] = [numbers.setdefault(number, len(numbers)) for number in line[key]]
            elif line.get(key) is not None:
                line[key] = numbers.setdefault(line[key], len(numbers))
        told.append(line)
    return told


@pytest.mark.parametrize(("children", "first", "count"), [(True, 0, 1000), (False, 1, 100)], ids=["all", "layers"])
def test_it_tells_what_python_tells(tmp_path, capfd, children, first, count):
    """Of layers alone without the first round, which tells what runs inside them."""
    result = runner(tmp_path, capfd)(ODD, content="stats", layout="rounds", children=children)
    if result.text.split() == ["not built"]:
        pytest.skip("the compiled kernel is not built")
    assert not [trouble for trouble in result.process.troubles if "torch, step" in trouble], result.process.troubles
    lines = [dict(line) for line in lines_of(result.process.folder) if line.get("step") is not None]
    lines = [line for line in lines if line.get("event") not in ("round", "steps", "between")]
    compiled = without_numbers([line for line in lines if first <= line["step"] < 4])
    python = without_numbers([line for line in lines if line["step"] >= 4 + first])
    assert len(compiled) > count
    for one, other in zip(compiled, python):
        assert one == other
    assert len(compiled) == len(python)
