"""Several networks in one program, its ranks, and what is no round: a loss."""

import socket

import pytest
from hooked_programs import sgsdump, trees

from sgsdump import DumpControl, capture
from sgsdump.capture.programs.control import OperatorFilter
from sgsdump.dumps.runs import pair_runs
from sgsdump.dumps.trees import list_runs
from sgsdump.errors import ConfigError

torch = pytest.importorskip("torch", reason="torch (the extra torch) is not installed")


class Draft(torch.nn.Linear):
    pass


class Target(torch.nn.Sequential):
    pass


def speculate(drafts):
    """Drafts, and after each of these numbers of them the target."""
    torch.manual_seed(0)
    draft, target = Draft(4, 4), Target(torch.nn.Linear(4, 4), torch.nn.ReLU())
    with torch.no_grad():
        for count in drafts:
            for _ in range(count):
                draft(torch.ones(4))
            target(torch.ones(4))


def test_networks_that_take_turns_pair_by_their_own_steps(tmp_path):
    for name, drafts in (("one", (1, 2)), ("more", (2, 2))):
        with capture(tmp_path / name):
            speculate(drafts)
    one, more = (list_runs(tmp_path / name) for name in ("one", "more"))
    facts = [(run.step, run.graph, run.own) for run in one]
    assert facts == [(0, "Draft", 0), (1, "Target", 0), (2, "Draft", 1), (3, "Draft", 2), (4, "Target", 1)]
    assert [run.own for run in list_runs(f"{tmp_path}/more@graph=Target")] == [0, 1]
    pairs = pair_runs(more, one)
    assert all((a.graph, a.own) == (b.graph, b.own) for a, b in pairs.pairs) and len(pairs.pairs) == 5
    assert [(run.graph, run.own) for run in pairs.only_in_sample] == [("Draft", 3)]


def test_one_network_alone_and_a_loss_is_no_round(tmp_path):
    with capture(tmp_path / "target", DumpControl(operators=OperatorFilter(module="Target"))):
        speculate((1, 2))
    runs = list_runs(tmp_path / "target")
    assert [(run.step, run.graph) for run in runs] == [(1, ""), (4, "")]
    with capture(tmp_path / "trained"), torch.no_grad():
        loss, net = torch.nn.MSELoss(), Draft(4, 4)
        for _ in range(2):
            loss(net(torch.ones(4)), torch.ones(4))
    assert [run.step for run in list_runs(tmp_path / "trained")] == [0, 1]
    with (
        pytest.raises(ConfigError, match="nothing was captured"),
        capture(tmp_path / "none", DumpControl(operators=OperatorFilter(module="Other"))),
    ):
        speculate((1,))


RANKS = """
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

class Shard(torch.nn.Module):
    def __init__(self, rank):
        super().__init__()
        torch.manual_seed(rank)
        self.rank, self.linear = rank, torch.nn.Linear(4, 4)

    def forward(self, x, wrong):
        y = self.linear(x) * (1.5 if wrong and self.rank == 1 else 1.0)
        dist.all_reduce(y)
        return y

def work(rank):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    with torch.no_grad():
        net = Shard(rank)
        for step in range(2):
            net(torch.ones(4), step == 1)
    dist.destroy_process_group()

if __name__ == "__main__":
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="{port}", GLOO_SOCKET_IFNAME="lo")
    mp.start_processes(work, nprocs=2, start_method="fork")
"""


def test_the_ranks_of_processes_that_the_program_starts_and_the_one_that_is_wrong(tmp_path):
    if not torch.distributed.is_available():
        pytest.skip("this torch has no torch.distributed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "ranks.py").write_text(RANKS.replace("{port}", str(port)))
    words = ("-er", "all", "--type", "model", "tensor", "stats", "-o", "dump")
    done = sgsdump("exec", *words, "--", "python", "ranks.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    tree = trees(tmp_path / "dump")[0]
    assert [(run.step, run.rank) for run in list_runs(tree)] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    done = sgsdump("compare", f"{tree}@step=1", f"{tree}@step=0", cwd=tmp_path)
    assert "The first run that differs is step 0, rank 1" in done.stdout, done.stdout
    of_rank_0 = done.stdout.partition("rank 1")[0]
    sent = "values that another rank contributes to 2_allreduce_/output.0 (allreduce_), called at ranks.py:15, differ"
    assert sent in of_rank_0, done.stdout
    assert "the argument other differs at 1_mul/output.0 (mul), called at ranks.py:14: 1.5 in sample" in done.stdout
