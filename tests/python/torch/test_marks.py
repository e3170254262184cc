# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Products whose groups of rows start calls of torch.distributed, and NCCL beside operators."""

import unittest

import rig
import torch
import torch.distributed as dist
from rig import equal, integers, raises

import ceoverlap.torch as ct
from ceoverlap import errors
from ceoverlap.torch import Group

K, N = 64, 72
ROUNDS = 4
SHAPES = ((1, 0), (40, 3), (300, 4), (777, 32))         # rows, groups that are asked for
DELAY_CYCLES = 2_000_000                # of a producer: about a millisecond
NCCL_CTAS = 16                          # blocks of NCCL's kernels at a time


def inputs(tag, rank, m, k=K, n=N, dtype=torch.bfloat16):
    """Sparse, so that sums of products over all ranks are exact in bf16."""
    x, weight = integers(tag, rank, (m, k), dtype), integers(tag + 1, rank, (n, k), dtype)
    x[:, 16:] = 0
    return x, weight


def summed(tag, m, size):
    """What all ranks' products add up to."""
    pairs = [inputs(tag, rank, m) for rank in range(size)]
    return sum(x @ weight.t() for x, weight in pairs)


def sums_groups():
    """Each group is summed over ranks in place while others are computed."""
    group = Group.of()
    for m, n_groups in SHAPES:
        for i in range(ROUNDS):
            x, weight = inputs(10 * i, group.rank, m)
            seen = []

            def on_group(number, rows, seen=seen):
                seen.append((number, rows.shape[0]))
                dist.all_reduce(rows)

            y = ct.gemm_with_marks(x, weight, on_group, group, n_groups)
            equal(y, summed(10 * i, m, group.size), (m, n_groups, i))
            assert [number for number, _ in seen] == list(range(len(seen))), seen
            assert sum(n_rows for _, n_rows in seen) == m, seen
            assert len(seen) <= max(n_groups, 8), seen
            assert m < 300 or len(seen) > 1, seen


def differs_from_rank_to_rank():
    """Ranks make different products, and different numbers of them."""
    group = Group.of()
    ct.gemm_with_marks(*inputs(0, 0, 8), lambda *_: None, group)        # here all meet
    for i in range(1 + group.rank):
        m = 30 + 50 * i + group.rank
        x, weight = inputs(i, group.rank, m)
        parts = []
        y = ct.gemm_with_marks(x, weight, lambda _, rows, parts=parts: parts.append(rows.clone()),
                               group, 2)
        if group.is_gpu:
            torch.cuda.synchronize()
        equal(y, x @ weight.t(), m)
        equal(torch.cat(parts), y, m)
    dist.barrier()


def takes_what_operators_do_not():
    """Odd columns and other dtypes are one group, and no rows are, too."""
    group = Group.of()
    for m, k, n, dtype in ((40, K, 7, torch.bfloat16), (40, K, N, torch.float32),
                           (0, K, N, torch.bfloat16)):
        x, weight = inputs(3, group.rank, m, k, n, dtype)
        numbers = []
        y = ct.gemm_with_marks(x, weight, lambda i, rows, numbers=numbers: numbers.append(i),
                               group, 4)
        equal(y, x @ weight.t(), (m, k, n, dtype))
        assert numbers == [0], numbers
    x, weight = inputs(4, group.rank, 50)
    y = ct.gemm_with_marks(x.t().contiguous().t(), weight, lambda *_: None, group)
    equal(y, x @ weight.t(), "gaps")


def refuses():
    group = Group.of()
    x, weight = inputs(5, group.rank, 40)

    def nothing(*_):
        pass

    raises(errors.InvalidError, "no gradient", ct.gemm_with_marks, x,
           weight.clone().requires_grad_(), nothing, group)
    with torch.no_grad():
        ct.gemm_with_marks(x, weight.clone().requires_grad_(), nothing, group)
    raises(errors.InvalidError, "a weight of", ct.gemm_with_marks,
           x, weight[:, :8], nothing, group)
    raises(errors.InvalidError, "n_pieces is above 32", ct.gemm_with_marks, x, weight, nothing,
           group, 33)

    def fails(number, rows):
        raise ValueError(f"group {number}")

    raises(ValueError, "group 0", ct.gemm_with_marks, x, weight, fails, group, 2)
    equal(ct.gemm_with_marks(x, weight, nothing, group, 2), x @ weight.t(), "behind a failure")


def crosses_streams():
    """A late producer, the product on the default stream or another one, and memory that is
    used again at once."""
    group = Group.of()
    producer = torch.cuda.Stream()
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        expected = [inputs(10 * i, group.rank, 512) for i in range(2)]
        results = []
        torch.cuda.synchronize()
        for i in range(rig.SIZE + ROUNDS):
            with torch.cuda.stream(producer):
                torch.cuda._sleep(DELAY_CYCLES)
                x = expected[i % 2][0].clone()
                x.record_stream(stream)
            with torch.cuda.stream(stream):
                stream.wait_stream(producer)
                y = ct.gemm_with_marks(x, expected[i % 2][1],
                                       lambda _, rows: rows.mul_(2), group, 2)
                x.zero_()
                results.append(y.clone())
                del y
                torch.full((512, N), 7, dtype=torch.bfloat16, device=group.device)
        torch.cuda.synchronize()
        for i, result in enumerate(results):
            x, weight = expected[i % 2]
            equal(result, 2 * (x @ weight.t()), i)


def replays():
    """In a graph, twice in a row, with new operands for each replay."""
    group = Group.of()
    x, weight = inputs(0, group.rank, 700)

    def step():
        y = ct.gemm_with_marks(x, weight, lambda i, rows: rows.add_(i), group, 4)
        return ct.gemm_with_marks(x, weight, lambda _, rows: rows.mul_(2), group, 4) + y

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()
    for i in range(3 * ROUNDS):
        x.copy_(inputs(10 * i, group.rank, 700)[0])
        expected = step()
        result.zero_()
        graph.replay()
        torch.cuda.synchronize()
        equal(result, expected, i)
    del graph


def runs_beside_nccl():
    """An operator whose kernels wait for peers, and NCCL's all-reduce on another stream, begun in
    another order at every other rank: a budget of SMs leaves NCCL as many as it may take."""
    options = dist.ProcessGroupNCCL.Options()
    options.config.max_ctas = NCCL_CTAS
    beside = dist.new_group(pg_options=options)         # with a communicator of its own
    n_sms = torch.cuda.get_device_properties(rig.device()).multi_processor_count
    group = Group(dist.new_group(), n_sms=n_sms - 2 * NCCL_CTAS)
    other = torch.cuda.Stream()
    weight = integers(90, 0, (512, 256), torch.bfloat16)
    xs = [integers(91, rank, (2048 * group.size, 256), torch.bfloat16)
          for rank in range(group.size)]
    for x in xs:
        x[:, 16:] = 0
    expected = sum(x.chunk(group.size)[group.rank] @ weight.t() for x in xs)
    ct.matmul_reduce_scatter(xs[group.rank], weight, group)             # is made
    dist.all_reduce(torch.zeros(8, device=group.device), group=beside)  # likewise
    for i in range(5 * ROUNDS):
        ones = torch.ones(1 << 22, device=group.device)
        torch.cuda.synchronize()

        def reduce(ones=ones):
            with torch.cuda.stream(other):
                dist.all_reduce(ones, group=beside)

        if (group.rank + i) % 2:
            reduce()
        y = ct.matmul_reduce_scatter(xs[group.rank], weight, group)
        if (group.rank + i) % 2 == 0:
            reduce()
        torch.cuda.synchronize()
        equal(y, expected, i)
        assert (ones == group.size).all(), i
    group.close()


class Marks(unittest.TestCase):
    def test_sums(self):
        rig.run(sums_groups)

    def test_ranks_differ(self):
        rig.run(differs_from_rank_to_rank)

    def test_fallback(self):
        rig.run(takes_what_operators_do_not)

    def test_refusals(self):
        rig.run(refuses)

    @rig.needs_gpus
    def test_streams(self):
        rig.run(crosses_streams)

    @rig.needs_gpus
    @unittest.skipIf(rig.SHARES_GPUS, "NCCL takes no two ranks of one GPU")
    def test_beside_nccl(self):
        rig.run(runs_beside_nccl)

    @rig.needs_gpus
    @rig.needs_one_node
    def test_graphs(self):
        rig.run(replays)


if __name__ == "__main__":
    unittest.main()
