"""A layer of a decoder written in several ways, with and without a fault: programs judged by their exact values."""

import json
import math

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import sgsdump  # noqa: E402
from sgsdump.comparison.finding import ACCUMULATION  # noqa: E402
from sgsdump.comparison.naming.name_sources import read_name_sources  # noqa: E402

D, HEADS, T, HIDDEN = 32, 4, 6, 48
BLAMED = ("argument", "another tensor", "not finite", "cause", "channel")
TYPES = ("float32", "bfloat16")


class Norm(nn.Module):
    def __init__(self, way):
        super().__init__()
        self.way, self.weight = way, nn.Parameter(1 + 0.2 * torch.randn(D))

    def forward(self, x):
        if self.way == "rms_norm":
            return F.rms_norm(x, (D,), self.weight, 1e-5)
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + (1e-3 if self.way == "eps" else 1e-5))
        return y.to(x.dtype) * self.weight if self.way == "norm swapped" else self.weight * y.to(x.dtype)


class Attention(nn.Module):
    def __init__(self, way):
        super().__init__()
        self.way = way
        self.q, self.k, self.v, self.o = (nn.Linear(D, D) for _ in range(4))

    def fuse(self):
        self.qkv = nn.Linear(D, 3 * D).to(self.q.weight.dtype)
        for name in ("weight", "bias"):
            parts = [getattr(module, name).data for module in (self.q, self.k, self.v)]
            getattr(self.qkv, name).data = torch.cat(parts)
        del self.q, self.k, self.v

    def forward(self, x, mask):
        q, k, v = self.qkv(x).chunk(3, -1) if self.way == "fused" else (self.q(x), self.k(x), self.v(x))
        q, k, v = (part.view(1, T, HEADS, -1).transpose(1, 2) for part in (q, k, v))
        if self.way == "cache":
            buffer = torch.zeros(1, HEADS, 16, D // HEADS, dtype=k.dtype)
            buffer[:, :, :T] = k
            k = buffer[:, :, :T]
        if self.way == "sliced":
            k, v, mask = k[:, :, 1:], v[:, :, 1:], mask[..., 1:]
        if self.way == "sdpa":
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        else:
            scores = q @ k.transpose(-1, -2) / math.sqrt(D // HEADS)
            if self.way == "einsum":
                scores = torch.einsum("bhqd,bhkd->bhqk", q * (D // HEADS) ** -0.5, k)
            y = F.softmax((scores + mask).float(), -1).to(q.dtype) @ v
        y = y if self.way == "heads" else y.transpose(1, 2)
        return self.o(y.reshape(1, T, D))


class Mlp(nn.Module):
    def __init__(self, way):
        super().__init__()
        self.way, self.up, self.gate, self.down = way, nn.Linear(D, HIDDEN), nn.Linear(D, HIDDEN), nn.Linear(HIDDEN, D)

    def forward(self, x):
        curve = F.silu if self.way == "silu" else F.gelu
        if self.way == "swapped":
            y = self.up(x) * curve(self.gate(x))
        elif self.way == "exchanged":
            y = curve(self.up(x)) * self.gate(x)
        else:
            y = curve(self.gate(x)) * self.up(x)
        if self.way == "halves":
            half, weight = HIDDEN // 2, self.down.weight
            return y[..., :half] @ weight[:, :half].T + y[..., half:] @ weight[:, half:].T + self.down.bias
        if self.way == "narrow sum":
            total = self.down.bias.bfloat16()
            for start in range(0, HIDDEN, 4):
                part = slice(start, start + 4)
                total = total + (y[..., part] @ self.down.weight[:, part].T).bfloat16()
            return total.to(x.dtype)
        return self.down(y)


class Layer(nn.Module):
    def __init__(self, way, calls=1):
        super().__init__()
        self.way = way
        self.norm, self.attention, self.mlp = Norm(way), Attention(way), Mlp(way)

    def forward(self, x, mask):
        if self.way == "in place":
            y = self.attention(self.norm(x), mask)
            y += x
            return self.mlp(y).add_(y)
        x = x + self.attention(self.norm(x), mask)
        return x + self.mlp(x)


class Net(nn.Module):
    def __init__(self, way):
        super().__init__()
        self.layer, self.head = Layer(way), nn.Linear(D, 16)

    def forward(self, x):
        mask = torch.full((T, T), torch.finfo(x.dtype).min, dtype=x.dtype).triu(1)
        return self.head(self.layer(x, mask))


def run(folder, way, dtype):
    torch.manual_seed(3)
    net = Net(way).to(getattr(torch, dtype)).eval()
    if way == "fused":
        net.layer.attention.fuse()
    if way == "absorbed":  # the scale of the scores is in the weights of the queries
        net.layer.attention.q.weight.data /= 4
        net.layer.attention.q.bias.data /= 4
        net.layer.attention.k.weight.data *= 4
        net.layer.attention.k.bias.data *= 4
    x = torch.randn(1, T, D, generator=torch.Generator().manual_seed(1)).to(getattr(torch, dtype))
    with torch.no_grad(), sgsdump.capture(str(folder)):
        net(x)
    return f"{folder}@step=0"


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory):
    return {dtype: run(tmp_path_factory.mktemp(dtype) / "plain", "plain", dtype) for dtype in TYPES}


def compared(tmp_path, benchmark, way, dtype, **options):
    return sgsdump.compare(run(tmp_path / way.replace(" ", "_"), way, dtype), benchmark[dtype], **options)


def blamed(comparison):
    return [finding for finding in comparison.findings() if finding.kind in BLAMED]


HEALTHY = "halves,in place,sdpa,einsum,rms_norm,norm swapped,swapped,cache,fused,absorbed".split(",")


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("way", HEALTHY)
def test_the_same_computed_otherwise_is_not_accused(tmp_path, benchmark, way, dtype):
    comparison = compared(tmp_path, benchmark, way, dtype)
    assert blamed(comparison) == []
    verdict = comparison.verdict()
    assert verdict.state in ("equal", "within rounding")
    assert verdict.account.not_comparable == ()
    assert any(row.module == "head" and row.io == "out" for row in comparison.rows)


FAULTS = {
    "heads": ("transpose", "layer.attention"),
    "sliced": ("slice", "layer.attention"),
    "silu": ("gelu", "layer.mlp"),
    "eps": ("add", "layer.norm"),
    "exchanged": ("gelu", "layer.mlp"),
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("way", FAULTS)
def test_a_fault_is_named_with_its_operator_and_line(tmp_path, benchmark, way, dtype):
    comparison = compared(tmp_path, benchmark, way, dtype)
    first, *_ = blamed(comparison)
    kind, module = FAULTS[way]
    operators = [first.op_type, first.layer]
    assert any(kind in word for word in operators), operators
    assert first.facts["module"] == module
    assert "test_exact_causes.py:" in first.facts["source"]
    assert comparison.verdict().state == "differs"


@pytest.mark.parametrize("dtype", TYPES)
def test_a_sum_in_a_narrower_type_is_named_with_its_product(tmp_path, benchmark, dtype):
    comparison = compared(tmp_path, benchmark, "narrow sum", dtype)
    first, *_ = blamed(comparison)
    assert first.facts["how"] == ACCUMULATION
    assert first.op_type == "addmm"
    assert first.figures["additions"] == HIDDEN / 4
    assert first.figures["error"] > first.figures["benchmark_error"]
    assert "in bfloat16: 12 additions" in repr(comparison)


def test_a_map_takes_the_fused_module_apart(tmp_path, benchmark):
    comparison = compared(tmp_path, benchmark, "fused", "float32")
    (proposal,) = [finding for finding in comparison.findings() if finding.kind == "not comparable"]
    assert proposal.layer == "layer.attention.qkv"
    parts = {"layer.attention.qkv": {"parts": [f"layer.attention.{name}" for name in "qkv"], "axis": -1}}
    assert json.loads(proposal.facts["map"]) == parts
    path = tmp_path / "parts.json"
    path.write_text(proposal.facts["map"])
    mapped = compared(tmp_path / "mapped", benchmark, "fused", "float32", name_map=read_name_sources([path]))
    assert len(mapped.rows) > len(comparison.rows)
    assert not [finding for finding in mapped.findings() if finding.kind == "not comparable"]


def test_values_that_the_mask_hides_do_not_count(tmp_path, benchmark):
    comparison = compared(tmp_path, benchmark, "sdpa", "float32")
    masked = compared(tmp_path, benchmark, "eps", "float32")
    scores = next(row for row in masked.rows if row.op_type.startswith("op_softmax") and row.io == "in")
    assert scores.rmse > 1e-6, "by the scores that are seen, not by the lowest float"
    assert "which both sides mask" in scores.note
    assert comparison.passes()


class Cached(nn.Module):
    """Attention to a cache that is handed in."""

    def __init__(self):
        super().__init__()
        self.q = nn.Linear(D, D)

    def forward(self, x, k):
        return F.softmax(self.q(x) @ k.transpose(-1, -2), -1) @ k


def cached(folder, k, dtype):
    torch.manual_seed(5)
    net = Cached().to(dtype).eval()
    x = torch.randn(1, 2, D, generator=torch.Generator().manual_seed(2)).to(dtype)
    with torch.no_grad(), sgsdump.capture(str(folder)):
        net(x, k.to(dtype))
    return f"{folder}@step=0"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("fault", "what"), [("lost", "size"), ("other", "input")])
def test_a_cache_that_comes_in_otherwise_is_told(tmp_path, dtype, fault, what):
    k = torch.randn(1, 11, D, generator=torch.Generator().manual_seed(4))
    other = k[:, 1:] if fault == "lost" else torch.cat([k[:, :8], k[:, 7:8], k[:, 9:]], 1)
    both = cached(tmp_path / "sample", other, dtype), cached(tmp_path / "benchmark", k, dtype)
    comparison = sgsdump.compare(*both)
    assert comparison.verdict().state == "differs"
    first, *_ = blamed(comparison)
    assert first.facts["what"] == what
