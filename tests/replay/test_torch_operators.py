"""Torch's operators computed again: what torch itself gives is within the bounds, planted errors are outside."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from recorded_operators import array, recorded, worst  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from sgsdump.replay.bounds import TORCH  # noqa: E402
from sgsdump.replay.judgement import judge  # noqa: E402
from sgsdump.replay.torch_operators import Call, NotReplayed, is_moved, overload_of, references  # noqa: E402

TYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def normal(*shape, dtype, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=generator, dtype=torch.float64) * scale).to(dtype)


def programs(dtype):
    x, y = normal(3, 5, 48, dtype=dtype, scale=3), normal(3, 5, 48, dtype=dtype, seed=1)
    image, long = normal(2, 8, 9, 11, dtype=dtype, seed=2), normal(9, 700, dtype=dtype, seed=3)
    q, k, v = (normal(1, 2, 7, 16, dtype=dtype, seed=seed) for seed in (4, 5, 6))
    weight, bias = normal(8, dtype=dtype, seed=7), normal(8, dtype=dtype, seed=8)
    kernel = normal(6, 8, 3, 3, dtype=dtype, seed=9)
    return {
        "arithmetic": lambda: [x + y, x - y, x * y, x / y, x + 1e-5, 0.3 - x, x * 0.7, 10000**y, x.pow(3)],
        "in place": lambda: x.clone().add_(y).mul_(0.3)[:, 1:3].copy_(y[:, 1:3]),
        "curves": lambda: [f(x) for f in (F.gelu, F.silu, F.softplus, F.elu, F.mish, torch.sin, F.logsigmoid)],
        "softmax": lambda: [F.softmax(x, 1), F.log_softmax(x, -1), torch.logsumexp(x, -1)],
        "normalisations": lambda: [
            F.layer_norm(x + 9, (48,), y[0, 0], y[0, 1]),
            F.group_norm(image, 2, weight, bias),
            F.batch_norm(image, bias, weight.abs() + 0.1, weight, bias),
            F.rms_norm(x, (48,)),
        ],
        "products": lambda: [long @ long.t(), F.linear(x, y[0], y[0, :, 0]), torch.baddbmm(x[:, :, :5], x, y.mT)],
        "convolutions": lambda: [
            F.conv2d(image, kernel, weight[:6], padding=1),
            F.conv2d(image, kernel[0].reshape(8, 1, 3, 3), groups=8, stride=2),
            F.conv_transpose2d(image, kernel.reshape(8, 6, 3, 3), stride=2),
        ],
        "sums": lambda: [x.sum(), x.mean((0, 2)), x.var(-1), x.norm(dim=-1), x.cumsum(-1), x.argmax(-1), x.topk(3)],
        "moves": lambda: [x[x > 0], torch.cat([x, y], 1), x.mT.contiguous(), x[:, [0, 2]], x.to(torch.bfloat16)],
        "pools": lambda: [
            F.max_pool2d(image, 2),
            F.avg_pool2d(image, 3, 2),
            F.adaptive_avg_pool2d(image, 1),
            F.interpolate(image, scale_factor=2.0, mode="bilinear"),
        ],
        "attention": lambda: [
            F.scaled_dot_product_attention(q, k, v, is_causal=True),
            F.scaled_dot_product_attention(q, k, v, attn_mask=torch.zeros(7, 7, dtype=dtype)),
        ],
    }  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", programs(torch.float32))
def test_what_torch_computes_is_within(name, dtype):
    found = worst(recorded(programs(dtype)[name]))
    assert found
    assert [(kind, slot, judged) for kind, slot, judged in found if judged is None or judged.outside] == []


def judged(call, output):
    (only,) = references(call, TORCH[call.name])[:1]
    return judge(array(output), only)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_sum_kept_in_the_narrow_type_is_outside(dtype):
    x, w = normal(1, 1024, dtype=dtype).abs(), normal(1024, 2, dtype=dtype, seed=1).abs()
    (call,) = recorded(lambda: x @ w)
    narrow = torch.zeros(1, 2, dtype=dtype)
    for index in range(1024):
        narrow = narrow + x[:, index : index + 1] * w[index]
    assert not judged(call, x @ w).outside
    assert judged(call, narrow).outside


PLANTED = {
    "another curve": (lambda x: F.gelu(x), lambda x: F.gelu(x, approximate="tanh")),
    "another eps": (lambda x: F.layer_norm(x * 0.05, (64,)), lambda x: F.layer_norm(x * 0.05, (64,), eps=1e-3)),
    "another axis": (lambda x: F.softmax(x, -1), lambda x: F.softmax(x, 0)),
    "another sign": (lambda x: torch.relu(x), lambda x: x.abs()),
    "unbiased": (lambda x: x.var(-1, unbiased=False), lambda x: x.var(-1)),
    "a lost element": (lambda x: x.sum(-1), lambda x: x[:, :-1].sum(-1)),
    "an element elsewhere": (lambda x: x.t().contiguous(), lambda x: x.flip(0).t().contiguous()),
    "not causal": (
        lambda x: F.scaled_dot_product_attention(*[x.view(1, 1, 16, 64)] * 3, is_causal=True),
        lambda x: F.scaled_dot_product_attention(*[x.view(1, 1, 16, 64)] * 3),
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", PLANTED)
def test_an_operator_that_computes_something_else_is_outside(name, dtype):
    right, wrong = PLANTED[name]
    x = normal(16, 64, dtype=dtype)
    call, other = recorded(right, x)[-1], recorded(wrong, x)[-1]
    assert not judge(call.outputs[0], references(call, TORCH[call.name])[0]).outside
    assert judge(other.outputs[0], references(call, TORCH[call.name])[0]).outside


def test_of_equal_values_any_place_is_right_and_no_other_one():
    x = torch.tensor([[1.0, 3.0, 3.0]])
    (call,) = recorded(lambda: x.argmax(-1))
    for place, outside in ((1, 0), (2, 0), (0, 1)):
        given = replace(call, outputs=[np.array([place])])
        assert judge(given.outputs[0], references(given, TORCH["argmax"])[0]).outside == outside


@pytest.mark.parametrize("kind", ["aten.__class__", "aten.no_such_operator", "os.system", "aten.relu.default", "aten."])
def test_only_torchs_own_operators_are_looked_up(kind):
    with pytest.raises(NotReplayed):
        overload_of(kind, "")
    with pytest.raises(NotReplayed, match="overload"):
        overload_of("aten.relu", "__init__")


def test_arguments_that_ask_for_more_than_there_is_are_refused():
    call = Call("aten.zeros", "", {}, {"size": [10**12]}, [np.zeros(3, np.float32)])
    with pytest.raises(NotReplayed, match="does not match"):
        references(call, TORCH["zeros"])


def test_a_range_that_asks_for_more_than_there_is_is_refused():
    call = Call("aten.arange", "", {}, {"end": 10**12}, [np.zeros(3, np.int64)])
    with pytest.raises(NotReplayed, match="does not match"):
        references(call, TORCH["arange"])
    references(recorded(lambda: torch.arange(1.5, 4, 0.5))[-1], TORCH["arange"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn], ids=str)
def test_what_only_moves_values_moves_them_bit_by_bit(dtype):
    x = normal(4, 6, dtype=torch.float32).to(dtype)
    for move in (lambda x: x.t(), lambda x: x.view(2, 12), lambda x: x.split(3, 1), lambda x: x[1:], torch.clone):
        call = recorded(move, x)[-1]
        assert is_moved(call)
        changed = call.outputs[-1].copy()
        changed.reshape(-1)[0] = 3.5
        assert not is_moved(replace(call, outputs=[*call.outputs[:-1], changed]))
    assert not is_moved(recorded(lambda x: x.to(torch.float64), x)[-1])


def test_a_call_that_does_not_fit_says_what_torch_says():
    call = Call("aten.mm", "", {"self": np.zeros((2, 3)), "mat2": np.zeros((2, 3))}, {}, [np.zeros((2, 3))])
    with pytest.raises(NotReplayed, match="RuntimeError"):
        references(call, TORCH["mm"])
