# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Mixtures of experts against plain PyTorch of one process, forward and backward."""

import contextlib
import functools
import operator
import unittest
from unittest import mock

import rig
import torch
from rig import equal, integers, normal, raises

import ceoverlap.torch as ct
from ceoverlap import errors
from ceoverlap.torch import Group, experts

HIDDEN, FFN, LOCAL, TOP_K = 16, 24, 3, 2
TOLERANCES = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}


# --- data that all ranks know, and what has to come of them ------------------------------


def tokens_of(size):
    """Tokens of each rank: different numbers, none at the last one."""
    return [20 - 7 * rank % 13 for rank in range(size - 1)] + [0]


def ids_of(tag, rank, n, n_experts, top_k=TOP_K):
    """Different experts for each token; some are missing, and the last expert gets nothing."""
    generator = torch.Generator().manual_seed((rig.SEED * 1009 + tag) * 64 + rank)
    scores = torch.rand(n, n_experts, generator=generator)
    scores[:, -1] = -1
    ids = scores.topk(top_k, -1).indices
    ids[torch.rand(n, top_k, generator=generator) < 0.2] = -1
    return ids.to(rig.device())


def kept_of(ids, size, capacity):
    """Whether each copy finds room: a rank sends `capacity` rows to another one, in the order of
    experts and tokens."""
    kept = torch.zeros_like(ids, dtype=torch.bool)
    taken = [0] * size
    for expert in range(LOCAL * size):
        for token, k in (ids == expert).nonzero().tolist():
            target = expert // LOCAL
            kept[token, k] = taken[target] < capacity
            taken[target] += 1
    return kept


def swiglu(x, gate_up, down):
    gate, up = (x @ gate_up).chunk(2, -1)
    return torch.nn.functional.silu(gate) * up @ down


def mixed(xs, ids, weights, gate_up, down, kept=None):
    """Each rank's result, in the dtype of xs."""
    results = []
    for rank, x in enumerate(xs):
        y = x.new_zeros(x.shape)
        for k in range(ids[rank].shape[1]):
            of = ids[rank][:, k]
            for expert in range(gate_up.shape[0]):
                use = of == expert
                if kept is not None:
                    use = use & kept[rank][:, k]
                y = y + (swiglu(x, gate_up[expert], down[expert]) *
                         (weights[rank][:, k] * use)[:, None])
        results.append(y)
    return results


def close(got, expected, dtype, what):
    """Within a share of the largest number."""
    bound = TOLERANCES[dtype] * max(expected.abs().max().item() if expected.numel() else 0, 1)
    if got.shape != expected.shape:
        raise AssertionError(f"{what}: {tuple(got.shape)}, expected {tuple(expected.shape)}")
    error = (got.float() - expected.float()).abs().max().item() if got.numel() else 0.0
    if not error <= bound:
        raise AssertionError(f"{what}: differs by {error}, the bound is {bound}")


class Data:
    """What all ranks know, in fp32 with the precision of a dtype, and this rank's part of it."""

    def __init__(self, tag, dtype, n=None, repeats=False):
        self.group = Group.of()
        size, own = self.group.size, self.group.rank
        self.dtype, self.n_experts = dtype, LOCAL * size
        self.n = n or tokens_of(size)
        self.ids = [ids_of(tag, rank, self.n[rank], self.n_experts) for rank in range(size)]
        if repeats:
            for ids in self.ids:
                ids[::2, 1] = ids[::2, 0]

        def leaf(number, rank, shape, scale=1.0):
            one = normal(tag * 8 + number, rank, shape) * scale
            return one.to(dtype).float().requires_grad_()

        self.xs = [leaf(1, rank, (n, HIDDEN)) for rank, n in enumerate(self.n)]
        self.weights = [leaf(2, rank, (n, TOP_K)) for rank, n in enumerate(self.n)]
        self.gate_up = leaf(3, 0, (self.n_experts, HIDDEN, 2 * FFN), HIDDEN ** -0.5)
        self.down = leaf(4, 0, (self.n_experts, FFN, HIDDEN), FFN ** -0.5)
        self.grads = [normal(tag * 8 + 5, rank, (n, HIDDEN)).to(dtype)
                      for rank, n in enumerate(self.n)]
        self.own = slice(own * LOCAL, (own + 1) * LOCAL)
        self.x = self.xs[own].detach().to(dtype).requires_grad_()
        self.weight = self.weights[own].detach().clone().requires_grad_()
        self.experts = ct.SwiGLUExperts(LOCAL, HIDDEN, FFN, rig.device(), dtype)
        with torch.no_grad():
            self.experts.gate_up.copy_(self.gate_up[self.own])
            self.experts.down.copy_(self.down[self.own])

    def run(self, n_groups=1, **sizes):
        rank = self.group.rank
        experts = self.experts if n_groups == 1 else self.experts.groups(n_groups)
        return ct.moe(self.x, self.ids[rank], self.weight, experts, self.n_experts,
                      n_tokens=max(self.n), **sizes)

    def check(self, y, kept=None):
        """The result and all gradients."""
        rank, dtype = self.group.rank, self.dtype
        expected = mixed(self.xs, self.ids, self.weights, self.gate_up, self.down, kept)
        y.backward(self.grads[rank])
        torch.autograd.backward(expected, [grad.float() for grad in self.grads])
        close(y.detach(), expected[rank].detach(), dtype, "result")
        for got, wanted, what in (
                (self.x.grad, self.xs[rank].grad, "gradient of x"),
                (self.weight.grad, self.weights[rank].grad, "gradient of the weights"),
                (self.experts.gate_up.grad, self.gate_up.grad[self.own], "gradient of gate_up"),
                (self.experts.down.grad, self.down.grad[self.own], "gradient of down")):
            close(got, wanted, dtype, what)


# --- what ranks run ----------------------------------------------------------------------


def sorts_rows(dtype):
    """Rows come in the order of own experts, ranks and tokens, and all come back."""
    group = Group.of()
    n = tokens_of(group.size)
    xs = [integers(1, rank, (n[rank], HIDDEN), dtype) for rank in range(group.size)]
    ids = [ids_of(2, rank, n[rank], LOCAL * group.size) for rank in range(group.size)]
    x = xs[group.rank].clone().requires_grad_()
    rows, routing = experts.dispatch(x, ids[group.rank], LOCAL * group.size, n_tokens=max(n))
    expected, ends = [], []
    for expert in range(group.rank * LOCAL, (group.rank + 1) * LOCAL):
        expected += [xs[rank][(ids[rank] == expert).any(-1)] for rank in range(group.size)]
        ends.append(sum(len(part) for part in expected))
    equal(routing.ends, torch.tensor(ends, dtype=torch.int32, device=x.device), "ends")
    equal(rows.detach()[:ends[-1]], torch.cat(expected), "rows")
    sums = experts.combine(rows, routing)
    n_there = (ids[group.rank] >= 0).sum(-1, keepdim=True).to(dtype)
    equal(sums.detach(), xs[group.rank] * n_there, "sums")
    grad = integers(3, group.rank, x.shape, dtype)
    sums.backward(grad)
    equal(x.grad, grad * n_there, "gradient")


@contextlib.contextmanager
def filled_with_nan():
    """New memory is full of NaN, as it may be: what no row has come to must not matter."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def mixes(dtype, n_groups):
    data = Data(1, dtype)
    with filled_with_nan():
        data.check(data.run(n_groups))


def mixes_with_drops(n_groups, capacity):
    """Copies for which a rank has no room add nothing, and have no gradients."""
    data = Data(2, torch.float32)
    size = data.group.size
    kept = [kept_of(ids, size, capacity) for ids in data.ids]
    assert not all(mask[ids >= 0].all() for mask, ids in zip(kept, data.ids)), "no drops"
    data.check(data.run(n_groups, capacity=capacity), kept)


def in_batches(data, capacity):
    """Returns what moe() does with a group for each expert, by a batch of its own for each, in
    which tokens have no other experts."""
    size, rank = data.group.size, data.group.rank
    ids = data.ids[rank]
    ids = torch.where(kept_of(ids, size, capacity), ids, -1)
    sums = []
    for i, part in enumerate(data.experts.groups(LOCAL)):
        rows, routing = experts.dispatch(data.x, torch.where(ids % LOCAL == i, ids, -1),
                                         data.n_experts, n_tokens=max(data.n),
                                         capacity=min(capacity, max(data.n)))
        sums.append(experts.combine(part(rows, routing.ends[i:i + 1]), routing, data.weight))
    return functools.reduce(operator.add, sums)


def is_as_batches(dtype, capacity):
    """The same bits of the result and of all gradients."""
    found = []
    for call in (lambda data: data.run(LOCAL, capacity=capacity),
                 lambda data: in_batches(data, capacity)):
        data = Data(10, dtype)
        y = call(data)
        y.backward(data.grads[data.group.rank])
        found.append((y.detach(), data.x.grad, data.weight.grad, data.experts.gate_up.grad,
                      data.experts.down.grad))
    for i, (got, wanted) in enumerate(zip(*found)):
        equal(got, wanted, i)


def queues_groups_in_turn():
    """Tokens are sent to the next group before the last one's results are fetched, and what
    either waits for was queued before. Only the first dispatch looks at the experts' numbers."""
    data, done = Data(8, torch.float32), []

    def sent(x, expert_ids, routing):
        done.append(("dispatch" if expert_ids is None else "dispatch by ids", routing.number))
        return send(x, expert_ids, routing)

    def fetched(rows, weights, routing):
        done.append(("combine", routing.number))
        return fetch(rows, weights, routing)

    def part(i, call):
        def told(rows, ends):
            done.append(("experts", i))
            return call(rows, ends)
        return told

    parts = [part(i, call) for i, call in enumerate(data.experts.groups(LOCAL))]
    send, fetch = experts._experts.dispatch, experts._experts.combine
    with mock.patch.object(experts._experts, "dispatch", sent), \
            mock.patch.object(experts._experts, "combine", fetched):
        ct.moe(data.x, data.ids[data.group.rank], data.weight, parts, data.n_experts,
               n_tokens=max(data.n))
    wanted = [("dispatch by ids", 0), ("experts", 0)]
    for i in range(1, LOCAL):
        wanted += [("dispatch", i), ("experts", i), ("combine", i - 1)]
    wanted.append(("combine", LOCAL - 1))
    if done != wanted:
        raise AssertionError(f"{done}, expected {wanted}")


def counts_repeated_experts(dtype, n_groups):
    """An expert that a token names twice counts twice, with both weights, and both have gradients;
    also where a group has fewer experts than a token."""
    data = Data(11, dtype, repeats=True)
    data.check(data.run(n_groups))


def counts_repeated_experts_of_small_ranks():
    """With one expert a rank, blocks have room for one copy of each token."""
    group = Group.of()
    x = integers(1, group.rank, (5, HIDDEN))
    top_k = min(3, group.size)      # there are no more experts than ranks
    one = torch.full((5, top_k), (group.rank + 1) % group.size, dtype=torch.uint8,
                     device=x.device)
    equal(ct.moe(x, one, None, rows_of, group.size), top_k * x, "no weights")
    of_token = [0.25, 0.5, 4][:top_k]
    weights = torch.tensor([of_token] * 5, device=x.device).requires_grad_()
    y = ct.moe(x, one, weights, rows_of, group.size)
    equal(y.detach(), sum(of_token) * x, "weights")
    y.sum().backward()
    equal(weights.grad, x.sum(-1, keepdim=True).expand(5, top_k), "gradient of the weights")
    raises(errors.InvalidError, "weights", ct.experts.combine, x.new_zeros(5 * group.size, HIDDEN),
           experts.dispatch(x, one, group.size)[1], weights[:, :1])


def weights_have_exact_gradients(dtype, scale_x, scale_grad):
    """Products of a row's numbers with its gradient's may be beyond the range of the dtype."""
    group = Group.of()
    x = (normal(12, group.rank, (8, HIDDEN)).abs() * scale_x).to(dtype)
    grad = (normal(13, group.rank, (8, HIDDEN)) * scale_grad).to(dtype)
    ids = (torch.arange(8, device=x.device) % (LOCAL * group.size))[:, None]
    weights = torch.ones(8, 1, device=x.device, requires_grad=True)
    ct.moe(x, ids, weights, rows_of, LOCAL * group.size).backward(grad)
    products = x.double() * grad.double()
    error = (weights.grad[:, 0] - products.sum(-1)).abs() / products.abs().sum(-1)
    if not error.max() < 1e-5:
        raise AssertionError(f"{dtype}, {scale_x}: an error of {error.max()}")


def has_room_for_groups():
    """n_received is shared out to groups, and no group has more room than there can be rows."""
    for n_received, room in ((None, 120), (60, 20), (61, 21), (10 ** 6, 120)):
        sizes = experts._sizes_of_groups(3, 3, 40, n_received=n_received)
        if sizes != {"capacity": 40, "total_capacity": None, "n_groups": 3, "n_received": room}:
            raise AssertionError(f"n_received {n_received}: {sizes}, expected {room}")
    data = Data(9, torch.float32)
    n_received = data.group.size * max(data.n) * TOP_K * LOCAL
    data.check(data.run(LOCAL, n_received=n_received))


def mixes_other_batches_at_once():
    """Other routings and other numbers of tokens make no operator, also with gradients that
    come after another batch's forward pass."""
    first, second = Data(3, torch.float32), Data(4, torch.float32)
    results = [first.run(), second.run()]
    first.check(results[0])
    n_made = len(first.group.operators._made)
    second.check(results[1])
    n = tokens_of(first.group.size)
    third = Data(5, torch.float32, n[1:] + n[:1])
    third.check(third.run())
    assert len(first.group.operators._made) == n_made, "operators were made"


def mixes_nothing():
    """All copies are missing, and then there are no tokens at all."""
    group = Group.of()
    own = ct.SwiGLUExperts(LOCAL, HIDDEN, FFN, rig.device())
    for n, parts in ((8, own), (0, own), (8, own.groups(LOCAL)), (0, own.groups(LOCAL))):
        own.zero_grad()
        x = normal(1, group.rank, (n, HIDDEN)).requires_grad_()
        ids = torch.full((n, TOP_K), -1, device=x.device)
        weights = normal(2, group.rank, (n, TOP_K)).requires_grad_()
        y = ct.moe(x, ids, weights, parts, LOCAL * group.size, n_tokens=8)
        y.sum().backward()
        for got in (y.detach(), x.grad, weights.grad, own.gate_up.grad, own.down.grad):
            equal(got, torch.zeros_like(got), n)


def has_second_gradients(n_groups):
    """Of the squared gradients of x and of the weights."""
    data = Data(6, torch.float32)
    rank = data.group.rank

    def twice(y, x, weights):
        firsts = torch.autograd.grad(y, (x, weights), create_graph=True)
        return torch.autograd.grad(sum(one.square().sum() for one in firsts), (x, weights))

    got = twice(data.run(n_groups).square().sum(), data.x, data.weight)
    ys = mixed(data.xs, data.ids, data.weights, data.gate_up, data.down)
    expected = twice(ys[rank].square().sum(), data.xs[rank], data.weights[rank])
    for one, other in zip(got, expected):
        close(one, other, torch.float32, "second gradient")


def layer_learns(n_groups):
    """A layer with its router, on tokens in two dimensions."""
    group = Group.of()
    torch.manual_seed(group.rank)
    layer = ct.MoeLayer(HIDDEN, FFN, LOCAL * group.size, TOP_K, rig.device(), n_groups=n_groups)
    with torch.no_grad():
        layer.router.weight.copy_(normal(1, 0, layer.router.weight.shape))
    x = normal(2, group.rank, (2, 5, HIDDEN)).requires_grad_()
    layer(x).square().sum().backward()
    whole = [ct.all_gather(weight.detach().to_local()) for weight in layer.experts.parameters()]
    plain, router = (one.detach().clone().requires_grad_() for one in (x, layer.router.weight))
    probabilities, ids = (plain @ router.t()).softmax(-1).topk(TOP_K, -1)
    shares = probabilities / probabilities.sum(-1, keepdim=True)
    mixed([plain.flatten(0, 1)], [ids.flatten(0, 1)], [shares.flatten(0, 1)],
          *whole)[0].square().sum().backward()
    close(x.grad, plain.grad, torch.float32, "x")
    close(layer.router.weight.grad, router.grad, torch.float32, "router")


def runs_ahead(n_groups):
    """Once all kernels have run, the calling thread may queue many steps at once."""
    data = Data(7, torch.bfloat16)
    operators = data.group.operators

    def step():
        y = data.run(n_groups)
        return y, *torch.autograd.grad(y, (data.x, data.weight), data.grads[data.group.rank])

    step()
    first = step()
    with mock.patch.object(operators, "waits", False):
        results = [step() for _ in range(20)]
        torch.cuda.synchronize()
    for result in results:
        for got, wanted in zip(result, first):
            equal(got, wanted, "a step ahead")


def rows_of(rows, _ends):
    return rows


def is_refused():
    """Before anything is sent: what follows works."""
    group = Group.of()
    n_experts = LOCAL * group.size
    x = normal(1, group.rank, (4, HIDDEN))
    ids = torch.zeros(4, TOP_K, dtype=torch.int64, device=x.device)
    rows, routing = experts.dispatch(x, ids, n_experts)
    for text, call in (
            ("must be a multiple", lambda: experts.dispatch(x, ids, n_experts + 1)),
            ("above n_tokens", lambda: experts.dispatch(x, ids, n_experts, n_tokens=3)),
            ("must be n x hidden", lambda: experts.dispatch(x[0], ids, n_experts)),
            ("a multiple of 8", lambda: experts.dispatch(x[:, :7], ids, n_experts)),
            ("must be (4, 2)", lambda: experts.dispatch(x, ids[:3], n_experts)),
            ("must be integers", lambda: experts.dispatch(x, ids.float(), n_experts)),
            ("must be one of", lambda: experts.dispatch(x.double(), ids, n_experts)),
            ("rows", lambda: experts.combine(rows[1:], routing)),
            ("weights", lambda: experts.combine(rows, routing, x[:, :3])),
            ("must be 1 to", lambda: experts.dispatch(x, ids[:, :0], n_experts)),
            ("top_k at least 1", lambda: ct.moe(x, ids[:, :0], None, rows_of, n_experts)),
            ("top_k, the columns of expert_ids, must be 1 to",
             lambda: ct.moe(x, ids.repeat(1, n_experts), None, rows_of, n_experts)),
            ("top_k 0", lambda: ct.MoeLayer(HIDDEN, FFN, n_experts, 0)),
            ("MoeLayer", lambda: ct.MoeLayer(HIDDEN, FFN, n_experts + 1, TOP_K)),
            ("2 groups of 3", lambda: ct.MoeLayer(HIDDEN, FFN, n_experts, TOP_K, n_groups=2)),
            ("2 groups of 3", lambda: ct.SwiGLUExperts(LOCAL, HIDDEN, FFN).groups(2)),
            ("moe: 2 groups", lambda: ct.moe(x, ids, None, [rows_of] * 2, n_experts)),
            ("moe: 0 groups", lambda: ct.moe(x, ids, None, [], n_experts)),
            ("above n_tokens", lambda: ct.moe(x, ids, None, [rows_of] * LOCAL, n_experts,
                                              n_tokens=3))):
        raises(errors.InvalidError, text, call)
    many = 33 * group.size              # experts, of which a token cannot have all
    for n_groups in (1, 3):
        raises(errors.InvalidError, "must be 1 to 64", lambda: ct.moe(
            x, ids[:, :1].expand(4, 65), None, [rows_of] * n_groups, many))
    raises(TypeError, "n_token", lambda: ct.moe(x, ids, None, [rows_of] * LOCAL, n_experts,
                                                n_token=3))
    equal(experts.combine(*experts.dispatch(x, ids, n_experts)), TOP_K * x, "after refusals")


def names_no_expert(compares):
    """One rank does. All ranks refuse the call and go on."""
    data = Data(14, torch.float32)
    data.group.operators.compares = compares
    text = "rank 0 names " if compares else "a token of rank 0 names expert"
    own, rank = data.ids[data.group.rank], data.group.rank
    for n_groups in (1, LOCAL):
        for wrong in (data.n_experts, -2, 1 << 32, -(1 << 40)):
            if rank == 0:
                data.ids[rank] = own.clone()
                data.ids[rank][1, 1] = wrong
            raises(errors.InvalidError, text, data.run, n_groups)
        data.ids[rank] = own
        data.check(data.run(n_groups))
        data = Data(14, torch.float32)
    data.group.operators.compares = False


def is_called_by_one_rank():
    """The others call something else; where calls are compared, all say so and go on."""
    data = Data(14, torch.float32)
    group = data.group
    group.operators.compares = True
    x = torch.ones(8, device=group.device)
    raises(errors.InvalidError, "must be the same at all ranks",
           *((ct.all_reduce, x) if group.rank else (data.run, 1)))
    equal(ct.all_reduce(x), x * group.size, "after it")
    data.check(data.run(1))
    group.operators.compares = False


def is_not_captured():
    group = Group.of()
    x = normal(1, group.rank, (4, HIDDEN))
    ids = torch.zeros(4, TOP_K, dtype=torch.int32, device=x.device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        raises(errors.InvalidError, "outside the capture", experts.dispatch, x, ids,
               LOCAL * group.size)


class Experts(unittest.TestCase):
    def each(self, function, *arguments):
        for dtype in TOLERANCES:
            with self.subTest(dtype=dtype, arguments=arguments):
                rig.run(function, dtype, *arguments)

    def test_dispatch_and_combine(self):
        self.each(sorts_rows)

    def test_mixture_and_gradients(self):
        for n_groups in (1, LOCAL):
            self.each(mixes, n_groups)

    def test_repeated_experts(self):
        for n_groups in (1, LOCAL):
            self.each(counts_repeated_experts, n_groups)
        rig.run(counts_repeated_experts_of_small_ranks)

    def test_gradients_of_weights(self):
        for case in ((torch.float16, 300.0, 1000.0), (torch.float16, 3e-4, 3e-5),
                     (torch.bfloat16, 1.0, 1.0), (torch.float32, 1.0, 1.0)):
            rig.run(weights_have_exact_gradients, *case)

    def test_drops(self):
        for n_groups in (1, LOCAL):
            for capacity in (4, 7):
                rig.run(mixes_with_drops, n_groups, capacity)

    def test_groups_are_batches_of_their_own(self):
        for capacity in (5, 10 ** 6):
            self.each(is_as_batches, capacity)

    def test_order_of_groups(self):
        rig.run(queues_groups_in_turn)

    def test_room_for_groups(self):
        rig.run(has_room_for_groups)

    def test_other_routings(self):
        rig.run(mixes_other_batches_at_once)

    def test_no_copies(self):
        rig.run(mixes_nothing)

    def test_gradients_of_gradients(self):
        for n_groups in (1, LOCAL):
            rig.run(has_second_gradients, n_groups)

    def test_layer(self):
        for n_groups in (1, LOCAL):
            rig.run(layer_learns, n_groups)

    def test_refusals(self):
        rig.run(is_refused)

    @unittest.skipIf(rig.HAS_GPUS, "on GPUs the group is at its end then")
    def test_experts_that_do_not_exist(self):
        rig.run(names_no_expert, False)

    def test_experts_that_do_not_exist_where_calls_are_compared(self):
        rig.run(names_no_expert, True)

    def test_a_rank_that_calls_something_else(self):
        rig.run(is_called_by_one_rank)

    @rig.needs_gpus
    @rig.needs_one_node
    @unittest.skipIf(rig.SHARES_GPUS, "needs a GPU for each rank")
    def test_steps_ahead(self):
        for n_groups in (1, LOCAL):
            rig.run(runs_ahead, n_groups)

    @rig.needs_gpus
    def test_capture(self):
        rig.run(is_not_captured)


if __name__ == "__main__":
    unittest.main()
