"""Buffers that are written in part, by indices and masks."""

import torch

torch.manual_seed(36)


class Pool(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 3)

    def forward(self, x, owner):
        h = self.fc(x)
        out = torch.empty(5, 3)
        out.index_copy_(0, torch.tensor([0, 2]), h[:2])
        total = torch.zeros(5, 3).index_add_(0, owner, h)
        best = torch.full((5, 3), -9.0).scatter_reduce_(0, owner[:, None].expand(-1, 3), h, "amax")
        _, counts = torch.unique(owner, return_counts=True)
        ragged = torch.nested.nested_tensor([h[:2], h[2:]])
        return (
            total
            + best
            + out[[0, 2]].sum()
            + counts.sum()
            + ragged.to_padded_tensor(0.0).sum()
            + torch.nonzero(h > 0).numel() * 0
            + h[h > 0].sum()
        )


net = Pool()
for _ in range(3):
    print(net(torch.randn(6, 3), torch.randint(0, 5, (6,))).sum().item())
