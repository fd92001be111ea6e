"""Torch programs of every kind, each a function whose result is printed: what ``sgsdump exec`` must not change.

    python kinds.py             # all, in this process; a line each
    python kinds.py trace exits # these; the last one may end the process in its own way

``tools/program_kinds.py`` runs them with and without ``exec``.
"""

import asyncio
import copy
import functools
import io
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import warnings
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune

warnings.filterwarnings("ignore")
KINDS = {}
# Each ends the process in its own way.
ENDINGS = {}


def kind(function):
    KINDS[function.__name__] = function
    return function


def ending(function):
    ENDINGS[function.__name__] = function
    return function


class Net(nn.Module):
    def __init__(self, size=8):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(size, 16), nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x):
        return self.last(F.gelu(self.norm(self.first(x))))


def digest(*values):
    """A line that tells the bits of tensors."""
    words = []
    for value in values:
        if isinstance(value, torch.Tensor):
            value = value.detach().to_dense() if value.layout != torch.strided else value.detach()
            bits = value.contiguous().view(-1)
            bits = torch.view_as_real(bits) if bits.is_complex() else bits
            numbers = bits.double().reshape(-1)
            words.append(
                f"{list(value.shape)} {value.dtype} {numbers.sum().item()!r} {numbers.square().sum().item()!r}"
            )
        else:
            words.append(repr(value))
    return "; ".join(words)


def net_and_input(dtype=torch.float32):
    torch.manual_seed(0)
    return Net().to(dtype).eval(), torch.randn(3, 8).to(dtype)


@kind
def eager():
    net, x = net_and_input()
    return digest(net(x))


@kind
def no_grad():
    net, x = net_and_input()
    with torch.no_grad():
        return digest(net(x))


@kind
def inference_mode():
    net, x = net_and_input()
    with torch.inference_mode():
        return digest(net(x))


@kind
def bfloat16():
    net, x = net_and_input(torch.bfloat16)
    return digest(net(x))


@kind
def convolutions():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten())
    net = net.to(memory_format=torch.channels_last)
    return digest(net(torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)))


@kind
def training():
    net, x = net_and_input()
    optimizer = torch.optim.SGD(net.train().parameters(), 0.1, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    return digest(*net.parameters())


@kind
def adam_under_autocast():
    net, x = net_and_input()
    optimizer = torch.optim.AdamW(net.parameters(), 0.01, foreach=True)
    with torch.autocast("cpu", torch.bfloat16):
        loss = net(x).float().square().mean()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.1)
    optimizer.step()
    return digest(*net.parameters())


@kind
def trace():
    net, x = net_and_input()
    return digest(torch.jit.trace(net, x)(x))


@kind
def trace_without_check():
    net, x = net_and_input()
    traced = torch.jit.trace(net, x, check_trace=False)
    return digest(traced(x), len(list(traced.graph.nodes())))


@kind
def frozen():
    net, x = net_and_input()
    return digest(torch.jit.freeze(torch.jit.trace(net, x))(x))


@kind
def optimized_for_inference():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval()
    x = torch.randn(1, 3, 8, 8)
    with torch.no_grad():
        return digest(torch.jit.optimize_for_inference(torch.jit.trace(net, x))(x))


@kind
def scripted():
    net, x = net_and_input()
    return digest(torch.jit.script(nn.Sequential(nn.Linear(8, 4), nn.ReLU()))(x).shape, net(x))


@kind
def saved_script():
    net, x = net_and_input()
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.trace(net, x), buffer)
    buffer.seek(0)
    return digest(torch.jit.load(buffer)(x))


@kind
def compiled_eager():
    net, x = net_and_input()
    return digest(torch.compile(net, backend="eager")(x))


@kind
def compiled_aot():
    net, x = net_and_input()
    loss = torch.compile(net, backend="aot_eager")(x).square().mean()
    loss.backward()
    return digest(loss, net.first.weight.grad)


@kind
def compiled_inductor():
    net, x = net_and_input()
    return digest(torch.compile(net)(x).round(decimals=3))


@kind
def exported():
    net, x = net_and_input()
    return digest(torch.export.export(net, (x,)).module()(x))


@kind
def symbolic_trace():
    net, x = net_and_input()
    graph = torch.fx.symbolic_trace(net)
    return digest(graph(x), len(graph.graph.nodes))


@kind
def vmap():
    net, x = net_and_input()
    return digest(torch.vmap(net)(x.unsqueeze(0).expand(2, 3, 8)))


@kind
def functional_gradients():
    net, x = net_and_input()
    weights = dict(net.named_parameters())
    loss = lambda w: torch.func.functional_call(net, w, (x,)).square().mean()  # noqa: E731
    return digest(torch.func.grad(loss)(weights)["first.weight"], torch.func.jacrev(torch.sin)(x[0]))


@kind
def second_derivative():
    x = torch.linspace(0, 1, 5, requires_grad=True)
    (first,) = torch.autograd.grad(x.sin().sum(), x, create_graph=True)
    return digest(*torch.autograd.grad(first.sum(), x))


@kind
def checkpointed():
    from torch.utils.checkpoint import checkpoint

    net, x = net_and_input()
    x.requires_grad_()
    checkpoint(net, x, use_reentrant=False).sum().backward()
    return digest(x.grad)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0]


@kind
def own_function():
    x = torch.arange(4.0, requires_grad=True)
    Double.apply(x).sum().backward()
    return digest(x.grad)


@kind
def own_operator():
    @torch.library.custom_op("kinds::third", mutates_args=())
    def third(x: torch.Tensor) -> torch.Tensor:
        return x / 3

    return digest(third(torch.arange(4.0)))


@kind
def hooks():
    net, x = net_and_input()
    seen = []
    net.first.register_forward_hook(lambda module, given, result: seen.append(tuple(result.shape)) or result * 2)
    net.last.register_full_backward_hook(lambda module, before, after: seen.append(tuple(after[0].shape)))
    net(x).sum().backward()
    return digest(net(x), seen)


class Counted(torch.Tensor):
    calls = 0

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.calls += 1
        return super().__torch_function__(function, types, args, kwargs or {})


@kind
def subclass():
    y = torch.arange(4.0).as_subclass(Counted).mul(2).add(1)
    return digest(y.as_subclass(torch.Tensor), type(y).__name__, Counted.calls > 0)


@kind
def own_modes():
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    counts = [0, 0]

    class Functions(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            counts[0] += 1
            return function(*args, **(kwargs or {}))

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            counts[1] += 1
            return function(*args, **(kwargs or {}))

    net, x = net_and_input()
    with torch.no_grad(), Functions(), Operators():
        y = net(x)
    return digest(y, counts)


@kind
def loader():
    from torch.utils.data import DataLoader, TensorDataset

    net, x = net_and_input()
    loaded = DataLoader(TensorDataset(x), batch_size=2, num_workers=1)
    return digest(*[net(batch) for (batch,) in loaded])


def _in_a_process(queue):
    net, x = net_and_input()
    queue.put(digest(net(x)))


@kind
def forked():
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=_in_a_process, args=(queue,))
    process.start()
    text = queue.get(timeout=120)
    process.join()
    return f"{text} {process.exitcode}"


@kind
def threads():
    net, x = net_and_input()
    results = {}
    several = [threading.Thread(target=lambda i=i: results.update({i: net(x + i)})) for i in range(3)]
    for thread in several:
        thread.start()
    for thread in several:
        thread.join()
    return digest(*[results[i] for i in range(3)])


@kind
def coroutines():
    net, x = net_and_input()

    async def one(i):
        await asyncio.sleep(0)
        return net(x + i)

    async def all_of_them():
        return await asyncio.gather(*[one(i) for i in range(3)])

    return digest(*asyncio.run(all_of_them()))


@kind
def quantised_dynamically():
    net, x = net_and_input()
    return digest(torch.ao.quantization.quantize_dynamic(net, {nn.Linear}, torch.qint8)(x))


@kind
def sparse():
    torch.manual_seed(0)
    a = torch.randn(4, 4).relu().to_sparse()
    return digest(torch.sparse.mm(a, torch.ones(4, 2)), a.to_sparse_csr() @ torch.ones(4))


@kind
def nested():
    parts = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)])
    return digest(torch.nested.to_padded_tensor(F.linear(parts, torch.eye(4)), 0.0))


@kind
def complex_numbers():
    x = torch.fft.fft(torch.arange(8.0))
    return digest(x, x.conj() * 2, torch.fft.irfft(x[:5]))


@kind
def cache_in_place():
    torch.manual_seed(0)
    cache = torch.zeros(2, 6, 4)
    for at in range(3):
        cache[:, at : at + 1] = torch.randn(2, 1, 4)
        cache[0].mul_(1.5)
    cache[cache > 1] = 0
    return digest(cache, cache.view(-1)[::2].add_(1))


@kind
def recurrent():
    torch.manual_seed(0)
    net = nn.LSTM(4, 5, bidirectional=True)
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(4, 2, 4), [4, 3])
    return digest(net(packed)[0].data, nn.GRU(4, 5)(torch.randn(3, 1, 4))[1])


@kind
def parametrised():
    torch.manual_seed(0)
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    prune.l1_unstructured(other := nn.Linear(4, 4), "weight", 0.5)
    return digest(layer(torch.ones(1, 4)), other(torch.ones(1, 4)))


@kind
def saved_and_loaded():
    net, x = net_and_input()
    with tempfile.TemporaryDirectory() as folder:
        torch.save(net.state_dict(), Path(folder, "net.pt"))
        other = copy.deepcopy(net)
        other.load_state_dict(torch.load(Path(folder, "net.pt"), weights_only=True))
    return digest(other(x))


@kind
def random_numbers():
    torch.manual_seed(7)
    dropped = F.dropout(torch.ones(8), 0.5)
    return digest(dropped, torch.randperm(8), torch.multinomial(torch.ones(8), 3), torch.rand(2))


@kind
def attention():
    torch.manual_seed(0)
    q = torch.randn(1, 2, 5, 8)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1).eval()
    with torch.no_grad():
        y = encoder(torch.randn(2, 5, 8), src_key_padding_mask=torch.tensor([[False] * 5, [False] * 3 + [True] * 2]))
    return digest(F.scaled_dot_product_attention(q, q, q, is_causal=True), y)


@kind
def distributed():
    with tempfile.TemporaryDirectory() as folder:
        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/at", rank=0, world_size=1)
        net, x = net_and_input()
        wrapped = nn.parallel.DistributedDataParallel(net)
        loss = wrapped(x).square().mean()
        loss.backward()
        torch.distributed.all_reduce(x)
        torch.distributed.destroy_process_group()
    return digest(loss, x, net.first.weight.grad)


@kind
def meta():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with torch.device("meta"):
        net = Net()
    with FakeTensorMode():
        fake = Net()(torch.randn(3, 8))
    return digest(tuple(net(torch.empty(3, 8, device="meta")).shape), tuple(fake.shape))


@kind
def conditional():
    x = torch.arange(4.0)
    return digest(torch.cond(x.sum() > 3, lambda x: x.sin(), lambda x: x.cos(), (x,)))


@kind
def profiled():
    net, x = net_and_input()
    with torch.profiler.profile() as profile:
        y = net(x)
    return digest(y, any(event.key == "aten::addmm" for event in profile.key_averages()))


@kind
def caught():
    net, _ = net_and_input()
    try:
        net(torch.ones(2, 3))
    except RuntimeError as error:
        return str(error)
    return "no error"


@kind
def shared_modules():
    torch.manual_seed(0)
    layer = nn.Linear(8, 8)
    net = nn.Sequential(layer, nn.ReLU(), layer)
    return digest(net(torch.ones(2, 8)), len(list(net.parameters())))


@kind
def numpy_and_lists():
    x = torch.arange(6.0).view(2, 3)
    x.numpy()[0, 0] = 5
    return digest(x, torch.from_numpy(x.numpy() * 2), x.tolist(), x.sum().item(), functools.reduce(torch.add, x))


@ending
def exits():
    net, x = net_and_input()
    print(digest(net(x)))
    sys.exit(3)


@ending
def raises():
    net, _ = net_and_input()
    net(torch.ones(2, 3))


@ending
def exits_at_once():
    net, x = net_and_input()
    print(digest(net(x)), flush=True)
    os._exit(5)


@ending
def is_killed():
    net, x = net_and_input()
    print(digest(net(x)), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[1:] or KINDS:
        print(f"{name}: {(ENDINGS.get(name) or KINDS[name])()}", flush=True)
