"""Operators of another library, one of which fills half of its buffer."""

import numpy as np
import torch

torch.manual_seed(22)


@torch.library.custom_op("p22::sort_rows", mutates_args=())
def sort_rows(x: torch.Tensor, descending: bool) -> torch.Tensor:
    y = np.sort(x.numpy(), axis=-1)
    return torch.from_numpy(np.ascontiguousarray(y[:, ::-1] if descending else y))


@sort_rows.register_fake
def _(x, descending):
    return torch.empty_like(x)


@torch.library.custom_op("p22::half_fill", mutates_args=("out",))
def half_fill(x: torch.Tensor, out: torch.Tensor) -> None:
    out.numpy()[: len(x)] = x.numpy()


library = torch.library.Library("p22", "FRAGMENT")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")


class Net(torch.nn.Module):
    def forward(self, x):
        out = torch.empty(2 * len(x), x.shape[1])
        half_fill(x, out)
        return torch.ops.p22.twice(sort_rows(x, True)) + out[: len(x)]


for _ in range(2):
    print(Net()(torch.randn(3, 4)).sum().item())
