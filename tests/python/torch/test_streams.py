# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""What is only true of GPUs: streams, memory that is freed at once, graphs, devices."""

import unittest

import rig
import torch
from rig import equal, integers, raises

import ceoverlap.torch as ct
from ceoverlap import errors
from ceoverlap.torch import Group

ROUNDS = 6 if rig.SHARES_GPUS else 20
ROWS, K, N = 256, 512, 384              # of each rank
DELAY_CYCLES = 2_000_000                # of a producer: about a millisecond


def operators(group):
    """Name, shape of x, call; the call's result for every rank's x is expected()."""
    size = group.size
    weight = integers(90, 0, (N, K), torch.bfloat16)
    return {
        "all_gather": ((ROWS, K), lambda x: ct.all_gather(x, group)),
        "all_to_all": ((ROWS * size, K), lambda x: ct.all_to_all(x, group)),
        "reduce_scatter": ((ROWS * size, K), lambda x: ct.reduce_scatter(x, group)),
        "all_reduce": ((ROWS, K), lambda x: ct.all_reduce(x, group)),
        "all_gather_matmul": ((ROWS, K), lambda x: ct.all_gather_matmul(x, weight, group)),
        "matmul_reduce_scatter": ((ROWS * size, K),
                                  lambda x: ct.matmul_reduce_scatter(x, weight, group)),
    }


def expected(name, xs, rank):
    """From every rank's x."""
    weight = integers(90, 0, (N, K), torch.bfloat16)
    size = len(xs)
    if name == "all_gather":
        return torch.cat(xs)
    if name == "all_to_all":
        return torch.cat([x.chunk(size)[rank] for x in xs])
    if name == "reduce_scatter":
        return sum(x.chunk(size)[rank] for x in xs)
    if name == "all_reduce":
        return sum(xs)
    if name == "all_gather_matmul":
        return torch.cat(xs) @ weight.t()
    return sum(x.chunk(size)[rank] @ weight.t() for x in xs)


def inputs(tag, shape, size):
    """Sparse, so that sums of products are exact in bf16."""
    xs = [integers(tag, rank, shape, torch.bfloat16) for rank in range(size)]
    for x in xs:
        x[:, 32:] = 0
    return xs


def cases(group):
    """(name, call, every rank's x, the expected result) for each operator and round."""
    for i, (name, (shape, call)) in enumerate(operators(group).items()):
        call(torch.zeros(shape, dtype=torch.bfloat16, device=group.device))     # is made
        rounds = [inputs(100 * i + j, shape, group.size) for j in range(2)]
        results = [expected(name, xs, group.rank) for xs in rounds]
        torch.cuda.synchronize()
        yield name, call, rounds, results


def crosses_streams(is_default):
    """A late producer on one stream, the operator on another or on the default one, the
    reader on a third."""
    group = Group.of()
    producer, reader = torch.cuda.Stream(), torch.cuda.Stream()
    middle = torch.cuda.default_stream() if is_default else torch.cuda.Stream()
    for name, call, rounds, results in cases(group):
        x = torch.zeros_like(rounds[0][group.rank])
        torch.cuda.synchronize()
        for i in range(ROUNDS):
            with torch.cuda.stream(producer):
                torch.cuda._sleep(DELAY_CYCLES * (1 + (group.rank + i) % 3))
                x.copy_(rounds[i % 2][group.rank])
            with torch.cuda.stream(middle):
                middle.wait_stream(producer)
                y = call(x)
                x.zero_()               # the operator has read it by then
            with torch.cuda.stream(reader):
                reader.wait_stream(middle)
                seen = y.clone()
                y.record_stream(reader)
            producer.wait_stream(middle)
            reader.synchronize()
            equal(seen, results[i % 2], (name, i))


def frees_at_once():
    """x and y go while the operator is only queued; what gets their memory is overwritten."""
    group = Group.of()
    for name, call, rounds, results in cases(group):
        sums = []
        for i in range(ROUNDS):
            torch.cuda._sleep(DELAY_CYCLES * (group.rank + i) // 4)
            x = rounds[i % 2][group.rank].clone()
            y = call(x)
            del x
            junk = [torch.full_like(rounds[0][group.rank], 7) for _ in range(3)]
            sums.append(y.clone())
            del y
            junk += [torch.full_like(results[0], 9) for _ in range(3)]
            del junk
        torch.cuda.synchronize()
        for i, one in enumerate(sums):
            equal(one, results[i % 2], (name, i))


def replays():
    """Each operator alone in a graph, then all in one."""
    group = Group.of()
    found = list(cases(group))
    for several in [[case] for case in found] + [found]:
        xs = [torch.zeros_like(rounds[0][group.rank]) for _, _, rounds, _ in several]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            ys = [call(x) for x, (_, call, _, _) in zip(xs, several)]
        for i in range(ROUNDS):
            for x, (_, _, rounds, _) in zip(xs, several):
                x.copy_(rounds[i % 2][group.rank])
            graph.replay()
            for y, (name, _, _, results) in zip(ys, several):
                equal(y, results[i % 2], (name, i, len(several)))
            for name, call, rounds, results in several:        # beside it, not captured
                equal(call(rounds[0][group.rank]), results[0], (name, "between replays"))
        torch.cuda.synchronize()
        del graph


def first_run_is_captured():
    """Its operator is made during the capture."""
    group = Group.of()
    x = torch.ones(8 * group.size * 3, device=group.device, dtype=torch.float16)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = ct.all_reduce(x, group)
    for i in range(1, ROUNDS):
        x.fill_(i)
        graph.replay()
        equal(y, torch.full_like(x, i * group.size), ("replayed", i))
        equal(ct.all_reduce(x + 1, group), torch.full_like(x, (i + 1) * group.size),
              ("not captured", i))
    torch.cuda.synchronize()
    del graph


def branches():
    """Two branches of a graph, with a collective of one group in each: of few and of many bytes,
    and in two workspaces."""
    group = Group.of()
    side, ranks = torch.cuda.Stream(), sum(range(group.size))
    for n, m in ((4096, 4096), (1 << 21, 4096), (1 << 25, 1 << 20)):
        x, y = (torch.zeros(k, device=group.device) for k in (n, m))
        ct.all_reduce(y, group), ct.all_reduce(x, group)        # the first one in a small workspace
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            main = torch.cuda.current_stream()
            side.wait_stream(main)
            with torch.cuda.stream(side):
                a = ct.all_reduce(x, group)
            b = ct.all_reduce(y, group)
            main.wait_stream(side)
        for i in range(10 * ROUNDS):
            x.fill_(i % 97 + group.rank)
            y.fill_(1000 + i % 89 + group.rank)
            graph.replay()
            equal(a, torch.full_like(x, group.size * (i % 97) + ranks), ("side", n, i))
            equal(b, torch.full_like(y, group.size * (1000 + i % 89) + ranks), ("main", m, i))
        torch.cuda.synchronize()
        del graph, a, b


def captures_meet():
    """From the first run in a capture to its end, a run elsewhere is refused, and harms neither."""
    group = Group.of()
    x = torch.full((4096,), 1.0 + group.rank, device=group.device)
    wanted = torch.full_like(x, sum(range(1, group.size + 1)))
    ct.all_reduce(x, group)
    torch.cuda.synchronize()
    graph, beside = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph, capture_error_mode="relaxed"):
        y = ct.all_reduce(x, group)
        with torch.cuda.stream(beside):         # not a branch of the graph
            raises(errors.StateError, "still being captured", ct.all_reduce, x, group)
    graph.replay()
    equal(y, wanted, "replayed")
    equal(ct.all_reduce(x, group), wanted, "not captured")
    torch.cuda.synchronize()


def is_elsewhere():
    """On another device than the group's rank."""
    group = Group.of()
    x = torch.ones(8 * group.size)
    raises(errors.InvalidError, "is on cuda", ct.all_reduce, x, group)
    if rig.N_GPUS > 1:
        other = (group.device.index + 1) % rig.N_GPUS
        raises(errors.InvalidError, "is on cuda", ct.all_gather, x.to(f"cuda:{other}"), group)


@rig.needs_gpus
class OnGpus(unittest.TestCase):

    def test_streams(self):
        rig.run(crosses_streams, False)

    def test_default_stream(self):
        rig.run(crosses_streams, True)

    def test_memory_is_freed_at_once(self):
        rig.run(frees_at_once)

    def test_graphs(self):
        rig.run(replays)

    def test_first_run_in_a_capture(self):
        rig.run(first_run_is_captured)

    def test_branches_of_a_graph(self):
        rig.run(branches)

    def test_a_run_beside_a_capture(self):
        rig.run(captures_meet)

    def test_other_devices(self):
        rig.run(is_elsewhere)


if __name__ == "__main__":
    unittest.main()
