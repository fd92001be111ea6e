"""Work that two processes share."""

import multiprocessing

import torch


def work(i):
    torch.set_num_threads(1)
    torch.manual_seed(100)
    net = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU())
    with torch.no_grad():
        return net(torch.full((2, 3), float(i))).sum().item()


if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(work, range(6), chunksize=1))
