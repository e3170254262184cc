# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Collectives and operators on tensors against dense maths, with gradients. Data are small
integers, so that every sum is exact in every dtype."""

import contextlib
import unittest
from unittest import mock

import rig
import torch
from rig import equal, integers, raises

import ceoverlap.torch as ct
from ceoverlap import errors, ops
from ceoverlap.torch import Group, _products, functional, operators

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
ALL_DTYPES = DTYPES + (torch.int64, torch.uint8, torch.bool)


def shares(size):
    """Rows of ranks: equal, uneven, none at one, all at one."""
    return ([4] * size, [3 + rank for rank in range(size)],
            [0] + [5] * (size - 1), [0] * (size - 1) + [7])


def rows_of(tag, rows, inner, dtype):
    """Each rank's rows."""
    return [integers(tag, rank, (n, *inner), dtype) for rank, n in enumerate(rows)]


def awkward(x, way):
    """The same numbers: as they are, with gaps, or not aligned."""
    if way == "gaps":
        return torch.stack([x, x], -1)[..., 0]
    if way == "misaligned":
        return torch.cat([x.new_zeros(1), x.reshape(-1)])[1:].view(x.shape)
    return x


# --- moves ------------------------------------------------------------------------------


def gathers(dtype):
    group = Group.of()
    for inner in ((16,), (3, 5), ()):
        for i, rows in enumerate(shares(group.size)):
            parts = rows_of(i, rows, inner, dtype)
            for way in ("plain", "gaps", "misaligned"):
                got = ct.all_gather(awkward(parts[group.rank], way), rows=rows)
                equal(got, torch.cat(parts), (inner, rows, way))
    x = integers(9, group.rank, (2, 8), dtype)
    equal(ct.all_gather(x, group), torch.cat(
        [integers(9, rank, (2, 8), dtype) for rank in range(group.size)]), "equal rows")


def gather_has_gradient(dtype):
    group = Group.of()
    for i, rows in enumerate(shares(group.size)):
        x = integers(i, group.rank, (rows[group.rank], 6), dtype).requires_grad_()
        grads = [integers(10 + i, rank, (sum(rows), 6), dtype) for rank in range(group.size)]
        ct.all_gather(x, rows=rows).backward(grads[group.rank])
        equal(x.grad, sum(grads).split(rows)[group.rank], rows)


def all_splits(size):
    """Rows from rank r to rank t: equal, uneven, with nothing between some."""
    return (None, [[r + t + 1 for t in range(size)] for r in range(size)],
            [[(r + 2 * t) % 3 for t in range(size)] for r in range(size)])


def exchanges(dtype):
    group = Group.of()
    for i, splits in enumerate(all_splits(group.size)):
        sent = splits or [[2] * group.size] * group.size
        parts = [integers(i, rank, (sum(sent[rank]), 16), dtype)
                 for rank in range(group.size)]
        got = ct.all_to_all(parts[group.rank], splits=splits)
        equal(got, torch.cat([part.split(sent[rank])[group.rank]
                              for rank, part in enumerate(parts)]), splits)


def exchange_has_gradient(dtype):
    group = Group.of()
    for i, splits in enumerate(all_splits(group.size)):
        sent = splits or [[2] * group.size] * group.size
        x = integers(i, group.rank, (sum(sent[group.rank]), 8), dtype).requires_grad_()
        grads = [integers(i + 10, rank, (sum(row[rank] for row in sent), 8), dtype)
                 for rank in range(group.size)]
        ct.all_to_all(x, splits=splits).backward(grads[group.rank])
        expected = [grad.split([row[rank] for row in sent])[group.rank]
                    for rank, grad in enumerate(grads)]
        equal(x.grad, torch.cat(expected), splits)


# --- sums -------------------------------------------------------------------------------


def sums_scattered(dtype):
    group = Group.of()
    for inner in ((16,), (3, 5), ()):
        for i, rows in enumerate(shares(group.size)):
            parts = [integers(i, rank, (sum(rows), *inner), dtype)
                     for rank in range(group.size)]
            for way in ("plain", "gaps", "misaligned"):
                got = ct.reduce_scatter(awkward(parts[group.rank], way), rows=rows)
                equal(got, sum(parts).split(rows)[group.rank], (inner, rows, way))


def scattered_sum_has_gradient(dtype):
    group = Group.of()
    for i, rows in enumerate(shares(group.size)):
        x = integers(i, group.rank, (sum(rows), 6), dtype).requires_grad_()
        grads = rows_of(10 + i, rows, (6,), dtype)
        ct.reduce_scatter(x, rows=rows).backward(grads[group.rank])
        equal(x.grad, torch.cat(grads), rows)


def sums_at_all(dtype):
    group = Group.of()
    for i, shape in enumerate(((8 * group.size,), (5,), (3, 7, 11), (), (0, 4))):
        parts = [integers(i, rank, shape, dtype) for rank in range(group.size)]
        equal(ct.all_reduce(parts[group.rank]), sum(parts), shape)
        if shape:
            equal(ct.all_reduce(awkward(parts[group.rank], "gaps")), sum(parts), shape)
        x = parts[group.rank].clone().requires_grad_()
        ct.all_reduce(x).backward(parts[group.rank])
        equal(x.grad, sum(parts), shape)


# --- products ---------------------------------------------------------------------------


def multiplies_gathered(dtype):
    """Up to 5 products; 8 x 24 goes to copy engines, 5 x 7 does not."""
    group = Group.of()
    for k, widths in ((24, (16,)), (24, (8, 24, 16)), (24, (8,) * 5), (5, (7,))):
        for i, rows in enumerate(shares(group.size)):
            for way in ("plain", "gaps", "misaligned"):
                parts = rows_of(i, rows, (k,), dtype)
                weights = [awkward(integers(20 + j, group.rank, (n, k), dtype), way)
                           for j, n in enumerate(widths)]
                got = ct.all_gather_matmul(awkward(parts[group.rank], way), weights,
                                           rows=rows)
                for one, weight in zip(got, weights):
                    equal(one, torch.cat(parts) @ weight.t(), (k, widths, rows, way))
    x, weight = integers(8, group.rank, (4, 24), dtype), integers(9, 0, (16, 24), dtype)
    equal(ct.all_gather_matmul(x, weight), ct.all_gather(x) @ weight.t(), "one weight")


def gathered_product_has_gradient(dtype):
    """Of x and of each weight, of some, of one only; with a sum for each product, too."""
    run = mock.Mock(wraps=_products.run_gemm_reduce_scatter)
    n_runs = []
    for k in (functional.EVEN_K, 8):
        with mock.patch.object(functional, "EVEN_K", k), \
                mock.patch.object(_products, "run_gemm_reduce_scatter", run):
            check_gradients_of_gathered_products(dtype)
            n_runs.append(run.call_count)
    assert (n_runs[1] > 2 * n_runs[0]) == (dtype != torch.float32), n_runs


def check_gradients_of_gathered_products(dtype):
    group = Group.of()
    for k, widths in ((24, (16,)), (24, (8, 16)), (5, (7, 3))):
        for i, rows in enumerate(shares(group.size)):
            for wanted in ("all", "x", "last weight"):
                parts = rows_of(i, rows, (k,), dtype)
                weights = [[integers(20 + j, rank, (n, k), dtype)
                            for j, n in enumerate(widths)] for rank in range(group.size)]
                grads = [[integers(30 + j, rank, (sum(rows), n), dtype)
                          for j, n in enumerate(widths)] for rank in range(group.size)]
                x, own = parts[group.rank].clone(), weights[group.rank]
                x.requires_grad_(wanted != "last weight")
                own[-1].requires_grad_(wanted != "x")
                own[0].requires_grad_(wanted == "all" or own[0].requires_grad)
                got = ct.all_gather_matmul(x, own, rows=rows)
                torch.autograd.backward(got, grads[group.rank])
                what = k, widths, rows, wanted
                if x.requires_grad:
                    whole = sum(grad @ weight.detach()
                                for at in range(group.size)
                                for grad, weight in zip(grads[at], weights[at]))
                    equal(x.grad, whole.split(rows)[group.rank], what)
                for weight, grad in zip(own, grads[group.rank]):
                    if weight.requires_grad:
                        equal(weight.grad, grad.t() @ torch.cat(parts), what)


def scatters_product(dtype):
    group = Group.of()
    for k, n in ((16, 24), (7, 5)):
        for i, rows in enumerate(shares(group.size)):
            for way in ("plain", "gaps", "misaligned"):
                xs = [integers(i, rank, (sum(rows), k), dtype) for rank in range(group.size)]
                weights = [integers(20, rank, (n, k), dtype) for rank in range(group.size)]
                got = ct.matmul_reduce_scatter(awkward(xs[group.rank], way),
                                               awkward(weights[group.rank], way), rows=rows)
                whole = sum(x @ weight.t() for x, weight in zip(xs, weights))
                equal(got, whole.split(rows)[group.rank], (k, n, rows, way))


def scattered_product_has_gradient(dtype):
    group = Group.of()
    for k, n in ((16, 24), (7, 5)):
        for i, rows in enumerate(shares(group.size)):
            for wants_x, wants_weight in ((True, True), (True, False), (False, True)):
                x = integers(i, group.rank, (sum(rows), k), dtype).requires_grad_(wants_x)
                weight = integers(20, group.rank, (n, k), dtype).requires_grad_(wants_weight)
                grads = rows_of(30 + i, rows, (n,), dtype)
                ct.matmul_reduce_scatter(x, weight, rows=rows).backward(grads[group.rank])
                whole = torch.cat(grads)
                if wants_x:
                    equal(x.grad, whole @ weight.detach(), (k, n, rows))
                if wants_weight:
                    equal(weight.grad, whole.t() @ x.detach(), (k, n, rows))


# --- gradients of gradients ---------------------------------------------------------------


def gradients_twice(xs, weights, ys):
    """Of the squared gradients of a loss over all ranks, for each x and each weight."""
    leaves = xs + weights
    loss = sum(y.pow(3).sum() for y in ys)
    firsts = torch.autograd.grad(loss, leaves, create_graph=True)
    return torch.autograd.grad(sum(first.pow(2).sum() for first in firsts), leaves)


def has_second_gradients(way):
    """Short, by torch.ops, and several products, with a sum for each, too."""
    group = Group.of()
    size, own = group.size, group.rank
    rows = {"gathers": 4, "scatters": 4 * size}
    is_several = way in ("several", "summed")

    def product(name, x, weight):
        if is_several:
            return torch.cat(ct.all_gather_matmul(x, [weight, weight]), 1)
        if name == "gathers":
            return (ct.all_gather_matmul(x, weight) if way == "short" else
                    torch.ops.ceoverlap.all_gather_matmul(x, [weight], None, True, False,
                                                          group.name)[1][0])
        return (ct.matmul_reduce_scatter(x, weight) if way == "short" else
                torch.ops.ceoverlap.matmul_reduce_scatter(x, weight, None, False, group.name))

    for name in ("gathers",) if is_several else ("gathers", "scatters"):
        xs, weights = ([(rig.normal(tag, rank, shape) / 4).requires_grad_()
                        for rank in range(size)]
                       for tag, shape in ((1, (rows[name], 8)), (2, (8, 8))))
        if name == "scatters":
            ys = [sum(x @ weight.t() for x, weight in zip(xs, weights))]
        else:
            ys = [torch.cat(xs) @ weight.t() for weight in weights]
            ys = [torch.cat([y, y], 1) if is_several else y for y in ys]
        expected = gradients_twice(xs, weights, ys)
        x, weight = (one[own].detach().clone().requires_grad_() for one in (xs, weights))
        with mock.patch.object(functional, "_pays_for_its_sum", return_value=way == "summed"):
            got = gradients_twice([x], [weight], [product(name, x, weight)])
        for one, whole in zip(got, (expected[own], expected[size + own])):
            error = ((one - whole).norm() / whole.norm()).item()
            assert error < 1e-3, f"{name}: {error} of it is wrong"


def what_is_unused_has_no_gradient():
    """Of several products, and of what was gathered alone."""
    group = Group.of()
    x = integers(0, group.rank, (4, 8)).requires_grad_()
    first, second = (integers(i, group.rank, (16, 8)).requires_grad_() for i in (1, 2))
    y, _ = ct.all_gather_matmul(x, [first, second])
    y.sum().backward()
    assert first.grad is not None and second.grad is None
    gathered, _ = torch.ops.ceoverlap.all_gather_matmul(x, [first], None, True, False,
                                                        group.name)
    (grad,) = torch.autograd.grad(gathered.sum(), [x])
    equal(grad, torch.full_like(grad, group.size), "of what was gathered")


def keeps_what_gradients_need():
    """A frozen weight keeps no activations alive."""
    group = Group.of()
    kept = []
    for frozen in ("weight", "x", ""):
        x = integers(0, group.rank, (4 * group.size, 8)).requires_grad_(frozen != "x")
        weight = integers(1, group.rank, (16, 8)).requires_grad_(frozen != "weight")
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(
                lambda tensor: kept.append(tuple(tensor.shape)) or tensor, lambda one: one):
            y = ct.matmul_reduce_scatter(x, weight)
        assert (tuple(x.shape) in kept) == (frozen != "weight"), (frozen, kept)
        assert (tuple(weight.shape) in kept) == (frozen != "x"), (frozen, kept)
        y.sum().backward()


# --- what tensors carry besides numbers ------------------------------------------------------


def reads_lazy_signs():
    """Conjugate and negative views are bits of a tensor, not of its memory."""
    group = Group.of()
    n = 8 * group.size
    z = torch.complex(integers(0, group.rank, (n,)), integers(1, group.rank, (n,))).conj()
    whole = torch.cat([torch.complex(integers(0, rank, (n,)), -integers(1, rank, (n,)))
                       for rank in range(group.size)])
    equal(ct.all_gather(z), whole, "conjugate")
    x = integers(2, group.rank, (n,))
    equal(ct.all_reduce(torch._neg_view(x)), -ct.all_reduce(x), "negative")


def keeps_dtype_under_autocast():
    """As where autocast does not know an operator; layers cast by themselves."""
    group = Group.of()
    x = integers(0, group.rank, (4 * group.size, 8)).requires_grad_()
    weight = integers(1, group.rank, (16, 8)).requires_grad_()
    for call in (ct.all_gather_matmul, ct.matmul_reduce_scatter):
        with torch.autocast(group.device.type, torch.bfloat16):
            y = call(x, weight)
        assert y.dtype == torch.float32
        y.sum().backward()
        assert x.grad.dtype == weight.grad.dtype == torch.float32


# --- what is kept -----------------------------------------------------------------------------


def is_full():
    """A new shape where every operator that is kept belongs to a graph, and where not; and
    what is known of shapes."""
    group = Group()
    xs = [torch.ones(8 * group.size * n, device=group.device) for n in range(1, 6)]
    with mock.patch.object(operators, "OPERATORS_MAX", 2):
        for x in xs[:2]:
            ct.all_reduce(x, group)
        group.operators._captured.update(group.operators._made)
        for x in xs + xs:
            equal(ct.all_reduce(x, group), x * group.size, x.shape)
            equal(ct.all_reduce(x, group), x * group.size, x.shape)
            matrix = x.view(-1, 8).bfloat16()
            equal(ct.all_gather_matmul(matrix, matrix.new_ones(8, 8), group),
                  matrix.new_full((len(matrix) * group.size, 8), 8), x.shape)
            assert len(group.operators.known) <= 2
        assert set(group.operators._captured) <= set(group.operators._made)
    group.close()


def fails_at_one_rank(kind, name):
    """While an operator is made: all ranks are told, and may try again."""
    group = Group()
    x = torch.ones(8 * group.size, device=group.device)

    def fail(*_args, **_options):
        raise MemoryError("none left")

    is_there = group.rank == group.size - 1
    failing = mock.patch.object(getattr(ops, kind), name, fail)
    with failing if is_there else contextlib.nullcontext():
        if is_there:
            raises(MemoryError, "none left", ct.all_reduce, x, group)
        else:
            raises(errors.StateError, f"rank {group.size - 1} has failed: MemoryError: none",
                   ct.all_reduce, x, group)
    equal(ct.all_reduce(x, group), x * group.size, "tried again")
    group.close()


# --- refusals ---------------------------------------------------------------------------


def is_refused():
    """Before anything is sent: what follows works."""
    group = Group.of()
    x = integers(0, group.rank, (4 * group.size, 16), torch.bfloat16)
    odd = x[:4 * group.size - 1]
    share = [4] * group.size
    for text, call in (
            ("rows [", lambda: ct.all_gather(x, rows=share)),
            ("equal shares", lambda: ct.reduce_scatter(odd)),
            ("with sum", lambda: ct.reduce_scatter(odd, rows=share)),
            ("sums are of", lambda: ct.reduce_scatter(x.long())),
            ("sums are of", lambda: ct.all_reduce(x.double())),
            ("without dimensions", lambda: ct.all_gather(x[0, 0])),
            ("numbers, must be", lambda: ct.all_to_all(x, splits=[[1]])),
            ("sends", lambda: ct.all_to_all(x, splits=[[1] * group.size] * group.size)),
            ("must be rows x k", lambda: ct.all_gather_matmul(x[0], x)),
            ("must be n x 16", lambda: ct.all_gather_matmul(x, x[:, :8])),
            ("must be n x 16", lambda: ct.matmul_reduce_scatter(x, x.float())),
            ("must not be below 0", lambda: ct.all_to_all(
                x, splits=[[-1] * group.size] * group.size)),
            ("no group is named", lambda: ct.all_reduce(x, "nobody"))):
        raises(errors.InvalidError, text, call)
    if group.channel is None:
        raises(errors.InvalidError, "multiple of 16 bytes", ct.all_to_all, x[:, :3].contiguous())
    equal(ct.all_reduce(x), sum(integers(0, rank, x.shape, x.dtype)
                                for rank in range(group.size)), "after refusals")


def ranks_differ():
    """A shape that is not the same everywhere is refused everywhere."""
    group = Group.of()
    n = 88 + 8 * (group.rank == group.size - 1)
    x = integers(1, group.rank, (4 * group.size, 16), torch.bfloat16)
    raises(errors.InvalidError, "must be the same at all ranks", ct.matmul_reduce_scatter, x,
           integers(0, group.rank, (n, 16), torch.bfloat16))
    equal(ct.all_reduce(torch.ones(8 * group.size, device=group.device)),
          torch.full((8 * group.size,), float(group.size), device=group.device), "after it")


def says_both_calls(group, call, x, other):
    """The last rank calls with `other`, which has as many bytes as x: all ranks refuse it, and say
    which rank has called what."""
    last = group.size - 1
    try:
        call(other if group.rank == last else x, group)
    except errors.InvalidError as error:
        for text in ("rank 0 has " if last == 1 else "ranks 0, ", f"; rank {last} has ",
                     f"{call.__name__}(float32 {list(x.shape)})",
                     f"{call.__name__}({str(other.dtype)[6:]} {list(other.shape)})"):
            if text not in str(error):
                raise AssertionError(f"{error} does not say {text!r}") from error
        return
    raise AssertionError(f"{call.__name__} of {other.dtype} {list(other.shape)} was not refused")


def ranks_differ_by_no_byte(compares):
    """At the first call of so many bytes, or at a later one where calls are compared."""
    group = Group()
    group.operators.compares = compares
    for i, (call, other) in enumerate((
            (ct.all_gather, torch.Tensor.int), (ct.all_gather, lambda x: x.view(-1, 16)),
            (ct.all_to_all, torch.Tensor.int), (ct.all_reduce, lambda x: x.view(-1, 16)),
            (ct.reduce_scatter, lambda x: x.view(-1, 16)))):
        x = torch.ones(2 * group.size * (i + 1), 8, device=group.device)
        if compares:
            call(x, group)
            call(other(x), group)
        says_both_calls(group, call, x, other(x))
        call(x, group)
    q = torch.ones(1, 4, 6, 8, device=group.device)
    if compares:
        ct.ring_attention(q, q, q, group)
        raises(errors.InvalidError, "balanced", ct.ring_attention, q, q, q, group, is_causal=True,
               is_balanced=group.rank == 0)
    group.close()


def ranks_fall_out_of_step():
    """Shapes that all ranks know, but not the same one everywhere: found where calls are
    compared."""
    group = Group()
    xs = [torch.ones(8 * group.size * n, device=group.device) for n in (1, 2)]
    for x in xs:
        ct.all_reduce(x, group)
    group.operators.compares = True
    for x in xs:
        equal(ct.all_reduce(x, group), x * group.size, "in step")
    raises(errors.InvalidError, "all_reduce(float32 ", ct.all_reduce,
           xs[group.rank == group.size - 1], group)
    ct.reduce_scatter(xs[0], group)
    raises(errors.InvalidError, "have reduce_scatter(" if group.size > 2 else "has reduce_scatter(",
           ct.reduce_scatter if group.rank else ct.all_reduce, xs[0], group)
    equal(ct.all_reduce(xs[0], group), xs[0] * group.size, "after it")
    group.close()


# --- compiled ---------------------------------------------------------------------------


def compiles(even_k):
    with mock.patch.object(functional, "EVEN_K", even_k):
        check_compiled()


def check_compiled():
    group = Group.of()
    name, size = group.name, group.size

    def block(x, gate, up, down):
        y, z = ct.all_gather_matmul(x, [gate, up], name)
        return ct.matmul_reduce_scatter(torch.nn.functional.relu(y) + z, down, name)

    def moves(x):
        y = ct.all_to_all(ct.all_gather(x, name), name)
        return ct.reduce_scatter(ct.all_reduce(y, name) * 0.5, name)

    compiled = {function: torch.compile(
        function, fullgraph=True, backend="inductor" if group.is_gpu else "aot_eager")
        for function in (block, moves)}
    tensors = [integers(i, group.rank, shape, torch.bfloat16)
               for i, shape in enumerate(((4 * size, 16), (24, 16), (24, 16), (16, 24)))]
    for function, arguments in ((block, tensors), (moves, tensors[:1])):
        results = []
        for one in (function, compiled[function], compiled[function]):
            leaves = [tensor.clone().requires_grad_() for tensor in arguments]
            y = one(*leaves)
            y.backward(integers(5, group.rank, y.shape, y.dtype))
            results.append([y.detach()] + [leaf.grad for leaf in leaves])
        for got in results[1:]:
            for a, b in zip(got, results[0]):
                equal(a, b, function.__name__)


class OnTensors(unittest.TestCase):
    """Each rank function runs once for each dtype."""

    def each(self, function, dtypes=DTYPES):
        for dtype in dtypes:
            with self.subTest(dtype=dtype):
                rig.run(function, dtype)

    def test_by_operators(self):
        """Moves and sums of host ranks go by channels else."""
        for function in (gathers, exchanges, sums_scattered, sums_at_all, gather_has_gradient):
            with self.subTest(function=function.__name__):
                rig.run(rig.by_operators, function, torch.bfloat16)

    def test_all_gather(self):
        self.each(gathers, ALL_DTYPES)

    def test_all_gather_gradient(self):
        self.each(gather_has_gradient)

    def test_all_to_all(self):
        self.each(exchanges, (torch.bfloat16, torch.float32, torch.int64, torch.uint8))

    def test_all_to_all_gradient(self):
        self.each(exchange_has_gradient)

    def test_reduce_scatter(self):
        self.each(sums_scattered)

    def test_reduce_scatter_gradient(self):
        self.each(scattered_sum_has_gradient)

    def test_all_reduce(self):
        self.each(sums_at_all)

    def test_all_gather_matmul(self):
        self.each(multiplies_gathered)

    def test_all_gather_matmul_gradient(self):
        self.each(gathered_product_has_gradient)

    def test_matmul_reduce_scatter(self):
        self.each(scatters_product)

    def test_matmul_reduce_scatter_gradient(self):
        self.each(scattered_product_has_gradient)

    def test_gradients_of_gradients(self):
        for way in ("short", "by torch.ops", "several", "summed"):
            with self.subTest(way=way):
                rig.run(has_second_gradients, way)

    def test_unused_results(self):
        rig.run(what_is_unused_has_no_gradient)

    def test_saved_tensors(self):
        rig.run(keeps_what_gradients_need)

    def test_lazy_signs(self):
        rig.run(reads_lazy_signs)

    def test_autocast(self):
        rig.run(keeps_dtype_under_autocast)

    def test_many_operators(self):
        rig.run(rig.by_operators, is_full)

    def test_failure_while_made(self):
        for kind, name in (("AllReduce", "__init__"), ("Workspace", "__init__")):
            with self.subTest(kind=kind):
                rig.run(rig.by_operators, fails_at_one_rank, kind, name)

    def test_refusals(self):
        rig.run(is_refused)
        rig.run(rig.by_operators, is_refused)

    def test_ranks_differ(self):
        rig.run(ranks_differ)

    def test_ranks_differ_by_no_byte(self):
        for compares in (False, True):
            rig.run(rig.by_operators, ranks_differ_by_no_byte, compares)
        rig.run(ranks_differ_by_no_byte, True)

    def test_ranks_fall_out_of_step(self):
        rig.run(ranks_fall_out_of_step)

    def test_compile(self):
        for even_k in (functional.EVEN_K, 8):
            with self.subTest(even_k=even_k):
                rig.run(compiles, even_k)


if __name__ == "__main__":
    unittest.main()
