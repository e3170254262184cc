# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Attention over a sequence that ranks share, against PyTorch's over the whole sequence, forward
and backward; and its pieces alone."""

import os
import subprocess
import sys
import unittest
from unittest import mock

import rig
import torch
from rig import equal, normal, raises

import ceoverlap.torch as ct
from ceoverlap import errors
from ceoverlap.torch import Group, _attend, _merge_kernel, attention

TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 1e-2,
              torch.bfloat16: 5e-2}
BATCH, WIDTH = 2, 16


def plain(q, k, v, is_causal, scale=None):
    """Attention in the dtype given, with all scores in memory."""
    n_each = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(n_each, 1), v.repeat_interleave(n_each, 1)
    scores = q @ k.transpose(-1, -2) * (WIDTH ** -0.5 if scale is None else scale)
    if is_causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    return scores.softmax(-1) @ v


def close(got, expected, what):
    if got.shape != expected.shape:
        raise AssertionError(f"{what}: {tuple(got.shape)}, expected {tuple(expected.shape)}")
    bound = TOLERANCES[got.dtype] * max(1.0, expected.abs().max().item())
    error = (got.double() - expected.double()).abs().max().item()
    if not error <= bound:
        raise AssertionError(f"{what}: differs by {error}, the bound is {bound}")


class Case:
    """q, k, v and the result's gradient: whole in fp64, and this rank's parts of them."""

    def __init__(self, dtype, n, heads, is_balanced=False, n_keys=None):
        self.group = Group.of()
        self.dtype, self.is_balanced = dtype, is_balanced
        n_heads, n_key_heads = heads
        size = self.group.size
        self.whole = []
        for tag, of, length in ((1, n_heads, n), (2, n_key_heads, n_keys or n),
                                (3, n_key_heads, n_keys or n), (4, n_heads, n)):
            one = normal(tag, 0, (BATCH, of, length * size, WIDTH))
            self.whole.append(one.to(dtype).double().requires_grad_(tag < 4))
        self.parts = [self.part(one.detach()).to(dtype).requires_grad_(one.requires_grad)
                      for one in self.whole]

    def part(self, whole):
        """This rank's part of a whole sequence."""
        if self.is_balanced:
            return attention.balanced_part(whole, 2, self.group)
        return whole.chunk(self.group.size, 2)[self.group.rank]

    def check(self, call, is_causal, scale=None):
        """The result and the gradients of q, k and v."""
        *whole, whole_grad = self.whole
        *parts, grad = self.parts
        y = call(*parts, is_causal=is_causal, scale=scale)
        y.backward(grad)
        expected = plain(*whole, is_causal, scale)
        expected.backward(whole_grad)
        what = self.dtype, is_causal, self.is_balanced
        close(y.detach(), self.part(expected.detach()), (what, "result"))
        for name, one, of in zip("qkv", parts, whole):
            close(one.grad, self.part(of.grad), (what, name))


# --- what ranks run ----------------------------------------------------------------------


def attends_in_ring(dtype):
    for heads in ((4, 4), (6, 2)):
        for is_causal, is_balanced in ((False, False), (True, False), (True, True)):
            case = Case(dtype, 12, heads, is_balanced)
            case.check(lambda *x, balanced=is_balanced, **how: ct.ring_attention(
                *x, is_balanced=balanced, **how), is_causal)


def attends_to_other_lengths():
    """Fewer queries than keys, a scale, and single keys."""
    for n, n_keys in ((3, 8), (5, 1), (1, 1)):
        Case(torch.float32, n, (2, 1), n_keys=n_keys).check(ct.ring_attention, False, 0.4)


def attends_to_strided(dtype):
    """Columns of one matrix, and tensors whose widths do not lie side by side."""
    case = Case(dtype, 6, (3, 3))
    case.parts[0] = case.parts[0].detach().transpose(2, 3).contiguous().transpose(2, 3)
    both = torch.stack([one.detach() for one in case.parts[1:3]], 2).transpose(2, 3)
    case.parts[1:3] = both[..., 0, :], both[..., 1, :]
    for one in case.parts[:3]:
        one.requires_grad_()
    case.check(ct.ring_attention, True)


def sends_no_more_than_is_needed():
    """With a causal mask nothing goes to ranks that lie before, and of balanced parts a half."""
    group = Group.of()
    row, n, size = 64, 8, group.size
    moved = {}
    for is_balanced in (False, True):
        ring = attention._Ring(group, attention._Mask(size, n, True, is_balanced), row,
                               attention._call_of("test", torch.empty(0), True, is_balanced))
        for is_home in (False, True):
            total = torch.zeros(size, size, dtype=torch.int64)
            for step in range(1, size):
                total += torch.tensor(ring._bytes(step, is_home)).view(size, size)
            moved[is_balanced, is_home] = total
    full = torch.full((size, size), n * row)
    equal(moved[False, False], full.triu(1), "in order")
    equal(moved[True, False], full.tril(-1) + (full // 2).triu(1), "balanced")
    for is_balanced in (False, True):
        equal(moved[is_balanced, True], moved[is_balanced, False].t(), "home")


def attends_by_heads(dtype):
    size = Group.of().size
    for heads in ((2 * size, 2 * size), (4 * size, size)):
        for is_causal in (False, True):
            Case(dtype, 5, heads).check(ct.all_to_all_attention, is_causal)
    Case(dtype, 4, (size, size)).check(ct.all_to_all_attention, True, 0.3)


def attends_under_autocast():
    """Operands are cast before, so that the backward pass sees what the forward pass saw."""
    size = Group.of().size
    for call in (ct.ring_attention, ct.all_to_all_attention):
        case = Case(torch.float32, 6, (size, size))
        *whole, whole_grad = case.whole
        *parts, grad = case.parts
        with torch.autocast(case.group.device.type, dtype=torch.bfloat16):
            y = call(*parts, is_causal=True)
        if y.dtype != torch.bfloat16:
            raise AssertionError(f"the result is of {y.dtype}")
        y.backward(grad.bfloat16())
        expected = plain(*whole, True)
        expected.backward(whole_grad)
        close(y.detach(), case.part(expected.detach()), "result")
        for name, one, of in zip("qkv", parts, whole):
            close(one.grad.bfloat16(), case.part(of.grad), name)


def parts_are_balanced():
    group = Group.of()
    positions = torch.arange(6 * group.size, device=group.device)
    own = attention.balanced_part(positions)
    equal(own[:3], positions[3 * group.rank:][:3], "from the begin")
    equal(own[3:].flip(0), positions.flip(0)[3 * group.rank:][:3], "from the end")
    raises(errors.InvalidError, "a multiple of", attention.balanced_part, positions[1:])


def is_refused():
    """Before anything is sent: what follows works."""
    group = Group.of()
    size = group.size
    x = normal(1, group.rank, (1, 2 * size, 4, WIDTH))
    for text, call in (
            ("nothing of it 0", lambda: ct.ring_attention(x[0], x, x)),
            ("nothing of it 0", lambda: ct.ring_attention(x, x[:, :, :0], x[:, :, :0])),
            ("must be alike", lambda: ct.ring_attention(x, x, x[:, :, 1:])),
            ("must be alike", lambda: ct.ring_attention(x[:, :, :, :8], x, x)),
            ("divides", lambda: ct.ring_attention(x[:, :2 * size - 1], x, x)),
            ("the same of q", lambda: ct.ring_attention(x, x.half(), x.half())),
            ("floating-point", lambda: ct.ring_attention(x.long(), x.long(), x.long())),
            ("queries and", lambda: ct.ring_attention(x[:, :, 1:], x, x, is_causal=True)),
            ("an even number", lambda: ct.ring_attention(
                *[x[:, :, 1:]] * 3, is_causal=True, is_balanced=True)),
            ("multiple of 16 bytes", lambda: ct.ring_attention(*[x[:, :1, :3, :1]] * 3)),
            ("must be a multiple", lambda: ct.all_to_all_attention(x, *[x[:, :1]] * 2))):
        raises(errors.InvalidError, text, call)
    Case(torch.float32, 4, (1, 1)).check(ct.ring_attention, True)


def has_no_second_gradients():
    case = Case(torch.float32, 4, (1, 1))
    y = ct.ring_attention(*case.parts[:3])
    (first,) = torch.autograd.grad(y.square().sum(), case.parts[0], create_graph=True)
    raises(RuntimeError, "once_differentiable", first.sum().backward)


def is_captured():
    """A graph of the call and its gradients, replayed with other numbers."""
    group = Group.of()
    parts = [normal(tag, group.rank, (1, 2, 64, 64), torch.bfloat16).requires_grad_()
             for tag in (1, 2, 3)]

    def call():
        y = ct.ring_attention(*parts, is_causal=True)
        return y, *torch.autograd.grad(y, parts, y.detach())

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            results = call()
        for _ in range(3):
            for one in parts:
                one.data.mul_(-0.5)
            graph.replay()
            for got, wanted in zip(results, call()):
                torch.testing.assert_close(got, wanted, rtol=1e-2, atol=1e-2)
        stream.synchronize()


# --- pieces, in this process -------------------------------------------------------------


def merges_alike():
    """The kernel against PyTorch's, over one, two and three further pieces, of all queries and of
    some, with rows of a width that is no power of two."""
    always = mock.Mock(takes=lambda out, lse: True, merge=_merge_kernel.merge)
    for dtype in _merge_kernel.DTYPES:
        for n, width, queries in ((40, 24, slice(None)), (33, 64, slice(16, None))):
            results = [normal(tag, 0, (BATCH, n, 2, width), dtype).transpose(1, 2)
                       for tag in range(4)]
            sums = [normal(tag, 1, (BATCH, 2, n), torch.float32) for tag in range(4)]
            for n_more in (1, 2, 3):
                (out, lse), (same_out, same_lse) = ((results[0].clone(), sums[0].clone())
                                                    for _ in range(2))
                merges = [_attend.Merge(one[:, :, queries], two[:, :, queries], n_more, kernel)
                          for one, two, kernel in ((out, lse, always),
                                                   (same_out, same_lse, None))]
                for i in range(1, n_more + 1):
                    piece = results[i][:, :, queries], sums[i][:, :, queries]
                    for merge in merges:
                        merge.add(*piece)
                close(out, same_out, f"{dtype}, {n_more} pieces")
                close(lse, same_lse, f"{dtype}, {n_more} pieces: log-sum-exp")


def n_compiled():
    """Returns how many kernels Triton has made of the one that merges."""
    return sum(len(caches[0]) for caches in _merge_kernel._merge.device_caches.values())


class Pieces(unittest.TestCase):
    def test_merged_pieces_are_the_whole(self):
        for dtype in TOLERANCES:
            q, k, v = (normal(tag, 0, (BATCH, 2, 9, WIDTH), dtype) for tag in (1, 2, 3))

            def over(keys, queries=slice(None)):
                return _attend.forward(q[:, :, queries], k[:, :, keys], v[:, :, keys], False, 0.3)

            out, lse = over(slice(0, 4))
            merge = _attend.Merge(out, lse, 2)
            merge.add(*over(slice(4, 5)))
            merge.add(*over(slice(5, None)))
            wide = [one.double() for one in (q, k, v)]
            close(out, plain(*wide, False, 0.3).to(dtype), f"{dtype}")
            close(lse, over(slice(None))[1], f"{dtype}: log-sum-exp")

    def test_pieces_of_some_queries_are_merged_with_these(self):
        """In any order, with other pieces of all queries and without."""
        q, k, v = (normal(tag, 0, (BATCH, 2, 8, WIDTH), torch.float64) for tag in (1, 2, 3))
        some, keys = slice(4, None), [slice(0, 2), slice(2, 5), slice(5, 6), slice(6, 8)]

        def over(part, queries=slice(None)):
            return _attend.forward(q[:, :, queries], k[:, :, part], v[:, :, part], False, 0.3)

        for wanted in ([some], [None], [some, None], [None, some], [some, some],
                       [None, some, None]):
            out, lse = over(keys[0])
            merges = attention._Merges(out, lse, wanted)
            for queries, part in zip(wanted, keys[1:]):
                merges.add(queries, *over(part, queries or slice(None)))
            for rows, seen in ((slice(0, 4), [one is None for one in wanted]),
                               (some, [True] * len(wanted))):
                parts = [keys[0], *(part for part, is_seen in zip(keys[1:], seen) if is_seen)]
                own = [torch.cat([one[:, :, part] for part in parts], 2) for one in (k, v)]
                close(out[:, :, rows], plain(q[:, :, rows], *own, False, 0.3), f"{wanted} {rows}")
                close(lse[:, :, rows], _attend.forward(q[:, :, rows], *own, False, 0.3)[1],
                      f"{wanted} {rows}: log-sum-exp")

    def test_the_kernel_merges_as_products_do(self):
        """On the host Triton interprets it, in a process of its own."""
        if _merge_kernel.triton is None:
            self.skipTest("needs Triton")
        if rig.HAS_GPUS:
            merges_alike()
            return
        environment = dict(os.environ, TRITON_INTERPRET="1")
        subprocess.run([sys.executable, "-c", "import test_attention; "
                        "test_attention.merges_alike()"], check=True, env=environment,
                       cwd=os.path.dirname(os.path.abspath(__file__)), timeout=100)

    @rig.needs_gpus
    def test_the_kernel_is_compiled_before_it_is_used(self):
        """What prepare() has had compiled is what merges of any shape use."""
        if _merge_kernel.triton is None:
            self.skipTest("needs Triton")
        group = mock.Mock(device=torch.device("cuda", torch.cuda.current_device()), is_gpu=True,
                          is_capturing=lambda: False)
        kernel = _merge_kernel.MergeKernel(group)
        for dtype in _merge_kernel.DTYPES:
            kernel.prepare(torch.empty((1, 1, 1, 64), dtype=dtype, device=group.device))
        n_made = n_compiled()
        for dtype in _merge_kernel.DTYPES:
            for n_heads, n, queries in ((1, 16, slice(None)), (3, 1000, slice(1, None)),
                                        (16, 4096, slice(2048, None))):
                out = torch.zeros((2, n, n_heads, 64), dtype=dtype, device=group.device)
                out = out.transpose(1, 2)[:, :, queries]
                lse = torch.zeros((2, n_heads, n), device=group.device)[:, :, queries]
                for n_more in (1, 3):
                    self.assertTrue(kernel.takes(out, lse))
                    merge = _attend.Merge(out, lse, n_more, kernel)
                    for _ in range(n_more):
                        merge.add(out.clone(), lse.clone())
        self.assertEqual(n_compiled(), n_made)

    def test_the_kernels_types_do_not_depend_on_the_default_dtype(self):
        """Those of the numbers that it is compiled for, and of those that calls pass."""
        types = []

        class Grid:
            def __getitem__(self, _grid):
                return lambda *arguments, **_how: types.append(
                    [one.dtype for one in arguments if isinstance(one, torch.Tensor)])

        group = mock.Mock(device=torch.device("cpu"), is_gpu=True, is_capturing=lambda: False)
        kernel = _merge_kernel.MergeKernel(group)
        kernel._is_usable = True        # where there is no Triton, too
        out = torch.zeros((1, 1, 16, 64), dtype=torch.bfloat16)
        lse = torch.zeros((1, 1, 16), dtype=torch.float32)
        try:
            with mock.patch.object(_merge_kernel, "_merge", Grid(), create=True), \
                    mock.patch.object(_merge_kernel, "triton", mock.Mock()), \
                    mock.patch.object(torch.cuda, "device"):
                for dtype in (torch.float32, torch.bfloat16, torch.float64):
                    torch.set_default_dtype(dtype)
                    kernel._prepared.clear()
                    kernel.prepare(out)
                    kernel.merge(out, None, lse, (out, lse), True, True)
        finally:
            torch.set_default_dtype(torch.float32)
        self.assertEqual(len(types), 15)
        wide, own = torch.float32, torch.bfloat16
        self.assertEqual(types, [[own, wide, wide, own, wide]] * 15)

    def test_a_kernel_that_cannot_be_made_is_not_used(self):
        """Without a compiler, for one: PyTorch's kernels put pieces together."""
        group = mock.Mock(device=torch.device("cpu"), is_gpu=True, is_capturing=lambda: False)
        kernel = _merge_kernel.MergeKernel(group)
        kernel._is_usable = True        # where there is no Triton, too
        like = torch.empty((1, 1, 16, 64), dtype=torch.bfloat16)
        with mock.patch.object(kernel, "_make", side_effect=RuntimeError("no compiler")) as make, \
                mock.patch.object(torch.cuda, "device"), self.assertLogs("ceoverlap", "WARNING"):
            kernel.prepare(like)
            kernel.prepare(like)
        self.assertEqual(make.call_count, 1)
        self.assertFalse(kernel.takes(like, torch.zeros(1, 1, 16)))

    def test_rows_are_packed_alike_whatever_their_layout(self):
        """Those that are copied by 16 bytes, and those that cannot be."""
        whole = normal(1, 0, (BATCH, 3, 6, 24), torch.bfloat16)
        for k, is_wide in ((whole, True), (whole[..., 8:], True), (whole[:, :, 2:], True),
                           (whole.transpose(1, 2), True), (whole[..., :12], False),
                           (whole[..., 4:20], False), (whole.transpose(2, 3), False)):
            for v in (2 * k, (2 * k).transpose(2, 3).contiguous().transpose(2, 3)):
                rows = attention._pack(k, v)
                self.assertEqual(attention._wide(k).dtype is attention.WIDE, is_wide)
                self.assertTrue(rows.is_contiguous())
                for got, wanted in zip(attention._unpack(rows), (k, v)):
                    self.assertTrue(torch.equal(got, wanted))

    @rig.needs_gpus
    def test_flash_kernels_agree_with_products(self):
        """The result, the log-sum-exp and the gradients, with fewer heads of keys, too."""
        for dtype in _attend.FLASH_DTYPES:
            for n_heads, n_keys, is_causal in ((4, 96, True), (4, 40, False), (2, 96, False)):
                q, k, v, grad = (normal(tag, 0, (BATCH, of, n, 64), dtype)
                                 for tag, of, n in ((1, 4, 96), (2, n_heads, n_keys),
                                                    (3, n_heads, n_keys), (4, 4, 96)))
                if not _attend.has_flash(q):
                    self.skipTest("this GPU has no flash kernels")
                results = []
                for has_flash in (_attend.has_flash, lambda _: False):
                    with mock.patch.object(_attend, "has_flash", has_flash):
                        out, lse = _attend.forward(q, k, v, is_causal, 0.2)
                        results.append((out, lse, *_attend.backward(
                            grad, q, k, v, out, lse, is_causal, 0.2)))
                for name, got, wanted in zip(("out", "lse", "q", "k", "v"), *results):
                    self.assertEqual(got.dtype, wanted.dtype, name)
                    close(got.to(dtype), wanted, (dtype, n_heads, is_causal, name))


class Attention(unittest.TestCase):
    def each(self, function):
        for dtype in (torch.float64, torch.float16, torch.bfloat16):
            with self.subTest(dtype=dtype):
                rig.run(function, dtype)

    def test_ring(self):
        self.each(attends_in_ring)

    def test_other_lengths(self):
        rig.run(attends_to_other_lengths)

    def test_strides(self):
        for dtype in (torch.float32, torch.bfloat16):
            with self.subTest(dtype=dtype):
                rig.run(attends_to_strided, dtype)

    def test_what_is_sent(self):
        rig.run(sends_no_more_than_is_needed)

    def test_all_to_all(self):
        self.each(attends_by_heads)

    def test_autocast(self):
        rig.run(attends_under_autocast)

    def test_balanced_parts(self):
        rig.run(parts_are_balanced)

    def test_refusals(self):
        rig.run(is_refused)

    def test_no_second_gradients(self):
        rig.run(has_no_second_gradients)

    @rig.needs_gpus
    @rig.needs_one_node
    def test_capture(self):
        rig.run(is_captured)


if __name__ == "__main__":
    unittest.main()
