"""Gradients and batches by torch.func."""

import torch
from torch.func import functional_call, grad, jacrev, stack_module_state, vmap

torch.manual_seed(19)
nets = [torch.nn.Linear(4, 2) for _ in range(3)]
params, buffers = stack_module_state(nets)
base = nets[0]
x = torch.randn(5, 4)


def call(p, b, x):
    return functional_call(base, (p, b), (x,))


print(vmap(call, (0, 0, None))(params, buffers, x).sum().item())


class Loss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(4))

    def forward(self, x):
        per = vmap(grad(lambda w, row: (w * row).sin().sum()), (None, 0))(self.w, x)
        return per + jacrev(lambda v: v.square())(self.w).sum(0)


print(Loss()(x).sum().item())
