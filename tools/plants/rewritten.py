"""The units of ``program.py`` written otherwise with the same meaning: other operators, another order of sums.

What torch's own operators compute in float32 within is computed so here.
"""

from types import MethodType

import torch
from torch import nn
from torch.nn import functional


def _linear(self, x):
    """Two sums of half the terms each."""
    half, bias = self.in_features // 2, 0 if self.bias is None else self.bias
    return x[..., :half] @ self.weight[:, :half].t() + (x[..., half:] @ self.weight[:, half:].t() + bias)


def _conv(self, x):
    columns = functional.unfold(x, self.kernel_size, padding=self.padding)
    y = self.weight.flatten(1) @ columns + self.bias[:, None]
    return y.unflatten(-1, x.shape[2:])


def _normalised(x, axes, eps):
    wide = x.float()
    middle = wide - wide.mean(axes, keepdim=True)
    return middle / (middle.square().mean(axes, keepdim=True) + eps).sqrt()


def _layer_norm(self, x):
    return (_normalised(x, -1, self.eps) * self.weight + self.bias).to(x.dtype)


def _group_norm(self, x):
    y = _normalised(x.unflatten(1, (self.num_groups, -1)), (2, 3, 4), self.eps).flatten(1, 2)
    return (y * self.weight[:, None, None] + self.bias[:, None, None]).to(x.dtype)


def _batch_norm(self, x):
    """Folded into one product and one sum."""
    times = self.weight.float() / (self.running_var.float() + self.eps).sqrt()
    more = self.bias.float() - self.running_mean.float() * times
    return (x.float() * times[:, None, None] + more[:, None, None]).to(x.dtype)


def _gelu(self, x):
    return x * (0.5 * (1 + torch.erf(x.float() * 2**-0.5))).to(x.dtype)


def _slope(self, x):
    return torch.where(x > 0, x, x * self.slope)


def _softmax(self, x):
    powers = (x.float() - x.float().amax(self.dim, keepdim=True)).exp()
    return (powers / powers.sum(self.dim, keepdim=True)).to(x.dtype) + x


def _root(self, x):
    return self.weight * functional.rms_norm(x.float(), (16,), None, self.eps).to(x.dtype)


def _attention(self, x):
    """One product for queries, keys and values; attention in parts."""
    weights = [side.weight for side in (self.q, self.k, self.v)]
    sides = functional.linear(x, torch.cat(weights)).chunk(3, -1)
    q, k, v = (side.view(2, 4, 2, 8).transpose(1, 2) for side in sides)
    q, k = self.turned(q, k)
    scores = q @ k.to(q.dtype).transpose(2, 3) * (self.scale or 8**-0.5)
    scores = scores.masked_fill(torch.ones(4, 4, dtype=torch.bool).triu(1), -torch.inf)
    y = functional.softmax(scores, -1, dtype=torch.float32).to(v.dtype) @ v
    return x + y.transpose(1, 2).reshape(2, 4, 16)


def _cache(self, x):
    return x + x * 0.5


def _part(self, x):
    y = torch.cat([x[:, place : place + 1] * (1 if place % 2 else self.factor) for place in range(x.shape[1])], 1)
    return torch.cat([y[:1] + (self.more or 0), y[1:]])


OF_NAME = {
    "Linear": _linear,
    "Conv2d": _conv,
    "LayerNorm": _layer_norm,
    "GroupNorm": _group_norm,
    "BatchNorm2d": _batch_norm,
    "GELU": _gelu,
    "Slope": _slope,
    "Softmax": _softmax,
    "Root": _root,
    "Attention": _attention,
    "Cache": _cache,
    "Part": _part,
}


def rewrite(net: nn.Module, kinds):
    """The modules of these kinds (``OF_NAME``), in place, written otherwise."""
    for module in net.modules():
        if type(module).__name__ in kinds:
            module.forward = MethodType(OF_NAME[type(module).__name__], module)
