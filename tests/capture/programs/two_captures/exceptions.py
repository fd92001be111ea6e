"""Rounds that end in an error."""

import torch

torch.manual_seed(26)


class Fussy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)

    def forward(self, x):
        y = self.fc(x)
        if y.shape[0] == 3:
            raise ValueError("three")
        try:
            y = y @ torch.ones(5, 5)
        except RuntimeError:
            y = y * 2
        return y


net = Fussy()


def answer(n):
    try:
        return net(torch.randn(n, 4)).sum().item()
    except ValueError as error:
        return f"caught {error}"


print(*map(answer, (2, 3, 4, 1)))
try:
    net(torch.randn(2, 7))
except RuntimeError:
    print("bad shape")
print(net(torch.randn(2, 4)).sum().item())
