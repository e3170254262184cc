# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Buffers, signals, plans and tickets over NumPy arrays on host ranks."""

import gc
import unittest
import weakref

import numpy as np

import ceoverlap
from ceoverlap import Mark, Spot, Transfer
from rig import Case, in_threads, until


class Buffers(Case):
    def test_registered_memory_is_kept_until_release(self):
        context = self.host()

        class Array(np.ndarray):
            pass

        values = np.zeros(64, np.uint8).view(Array)
        gone = weakref.ref(values)
        buffer = context.register(values, 0)
        target = context.allocate(64, 1)
        plan = context.plan(0).add(source=buffer, target=target, row_bytes=64).commit()
        del values
        buffer.close()                  # the plan still names it
        gc.collect()
        self.assertIsNotNone(gone())
        self.assertFalse(buffer.is_open)
        plan.launch().wait()
        plan.close()
        context.signal()                # any call sweeps
        gc.collect()
        self.assertIsNone(gone())

    def test_release_says_whether(self):
        context = self.host()
        source, target = context.allocate(64, 0), context.allocate(64, 1)
        plan = context.plan(0).add(source=source, target=target, row_bytes=64).commit()
        self.assertFalse(source.release())
        self.assertTrue(source.is_open)
        plan.close()
        self.assertTrue(source.release())
        self.assertTrue(source.release())
        with self.assertRaises(ceoverlap.StateError):
            source.address()

    def test_views(self):
        context = self.host()
        buffer = context.allocate(4096)
        view = buffer.view(np.float32, (8, 16), 64)
        view[:] = np.arange(128).reshape(8, 16)
        self.assertEqual(buffer.view(np.float32)[16:144].tolist(), list(range(128)))
        self.assertEqual(buffer.view().shape, (4096,))
        for arguments in ((np.float32, (2048,)), (np.uint8, (8,), 4090), (np.uint8, (8,), -8)):
            with self.assertRaises(ceoverlap.InvalidError):
                buffer.view(*arguments)
        rows = view[2:4]
        del view
        self.assertFalse(buffer.release())      # a part of a view is one, too
        buffer.close()
        rows[:] = 5                             # and its memory is there
        del rows
        gc.collect()
        self.assertTrue(buffer.release())

    def test_views_hold_a_buffer_that_nobody_else_holds(self):
        context = self.host()
        view = context.allocate(4096).view()
        gc.collect()
        view[:] = 3
        self.assertEqual(int(view.sum()), 3 * 4096)

    def test_refusals(self):
        context = self.host()
        read_only = np.zeros(64, np.uint8)
        read_only.flags.writeable = False

        class OnGpu:
            __cuda_array_interface__ = {"version": 3, "shape": (64,), "typestr": "|u1",
                                        "data": (0x7F0000000000, False)}

        for call in (lambda: context.register(read_only), lambda: context.register(OnGpu()),
                     lambda: context.register(np.zeros(0)), lambda: context.allocate(0),
                     lambda: context.register(np.zeros(8), 2), lambda: context.allocate(-1),
                     lambda: context.allocate(64).share(""), lambda: context.plan(7),
                     lambda: context.signal(1 << 33), lambda: context.plan(routes="none"),
                     lambda: context.plan(urgency="hurry")):
            with self.assertRaises(ceoverlap.InvalidError):
                call()

    def test_sharing_within_a_process(self):
        context = self.host()
        buffer = context.allocate(64, 1)
        with self.assertRaisesRegex(ceoverlap.InvalidError, "share: the name has 64 bytes"):
            buffer.share("x" * 64)
        with self.assertRaisesRegex(ceoverlap.InvalidError, "find: the name has 0 bytes"):
            context.find_buffer(1, "")
        with self.assertRaisesRegex(ceoverlap.PendingError,
                                    "rank 1 has not shared 'block' within") as caught:
            context.find_buffer(1, "block", timeout_s=0.01)
        self.assertIsInstance(caught.exception, TimeoutError)
        self.assertIsNone(buffer.name)
        buffer.share("block")
        found = context.find_buffer(1, "block")
        self.assertEqual(found.address(), buffer.address())
        self.assertEqual((found.size_bytes, found.name, found.place, found.is_found),
                         (64, "block", ceoverlap.Place("host"), True))
        self.assertFalse(buffer.is_found)
        with self.assertRaises(ceoverlap.InvalidError):
            found.view()
        self.assertFalse(buffer.release())
        found.close()
        self.assertTrue(buffer.release(timeout_s=1))


class Signals(Case):
    def test_verbs(self):
        context = self.host()
        signal = context.signal(4, rank=1)
        self.assertEqual(signal.rank, 1)
        signal.raise_to(3, 2)
        self.assertEqual([signal.value(i) for i in range(4)], [0, 0, 3, 0])
        self.assertTrue(signal.has_reached(3, 2))
        self.assertFalse(signal.has_reached(4, 2))
        for _ in range(3):
            self.assertEqual(signal.value(1), 0)
            signal.arrive(4, 7, 1)
        signal.arrive(4, 7, 1)
        self.assertEqual(signal.value(1), 7)
        with self.assertRaises(ceoverlap.InvalidError):
            signal.raise_to(2, 2)
        with self.assertRaises(ceoverlap.InvalidError):
            signal.raise_to(1, 4)
        with self.assertRaises(ceoverlap.InvalidError):
            signal.raise_to(1, -1)

    def test_wait(self):
        context = self.host()
        signal = context.signal()
        with self.assertRaises(ceoverlap.PendingError):
            signal.wait(1, timeout_s=0.01)
        in_threads(2, lambda rank: signal.wait(5) if rank else
                   [signal.raise_to(i) for i in range(1, 6)])

    def test_only_gpu_ranks_have_device_views(self):
        context = self.host()
        with self.assertRaises(ceoverlap.CeoverlapError):
            context.signal().for_device()

    def test_found(self):
        context = self.host()
        signal = context.signal(2, rank=1)
        signal.share("marks")
        found = context.find_signal(1, "marks")
        found.raise_to(4, 1)
        self.assertEqual(signal.value(1), 4)


class Plans(Case):
    def test_rows_between_arrays(self):
        context = self.host()
        a, b = np.arange(20 * 32).reshape(20, 32), np.zeros((10, 16), np.int64)
        source, target = context.register(a, 0), context.register(b, 1)
        plan = context.plan(0, urgency="urgent", routes="direct")
        plan.add(Transfer(Spot(source, 8 * (32 * 4 + 8), 8 * 32), Spot(target, 0, 8 * 16),
                          8 * 16, 10)).commit()
        plan.launch().wait()
        np.testing.assert_array_equal(b, a[4:14, 8:24])
        self.assertIn("transfer 0: rank 0 -> rank 1", plan.explain())

    def test_launches_with_marks(self):
        context = self.host()
        a = np.zeros(1 << 16, np.uint8)
        source, target = context.register(a, 0), context.allocate(a.nbytes, 1)
        ready, free, arrived = (context.signal(2, rank) for rank in (0, 1, 1))
        plan = context.plan(0).expect(ready.mark(), free.mark(0))
        plan.add(source=source, target=target, row_bytes=a.nbytes,
                 source_ready=ready.mark(), target_free=free.mark(0),
                 then=Mark(arrived, 1)).commit()
        view = target.view()

        def body(rank):
            for k in range(50):
                if rank == 0:
                    a[:] = k
                    ticket = plan.launch(k)
                    ready.raise_to(k + 1)
                    ticket.wait()
                else:
                    arrived.wait(k + 1, 1)
                    self.assertTrue((view == k).all())
                    free.raise_to(k + 1)

        in_threads(2, body)

    def test_an_array_is_no_buffer(self):
        context = self.host(1)
        target = context.allocate(64)
        for fields in ({"source": np.zeros(8), "target": target},
                       {"source": target, "target": np.zeros(8)},
                       {"source": target, "target": ceoverlap.Spot(np.zeros(8))}):
            with self.assertRaisesRegex(ceoverlap.InvalidError, "^(source|target): a ndarray, "
                                        "must be a Buffer or a Spot.*register"):
                context.plan().add(row_bytes=64, **fields)

    def test_numbers_that_a_launch_cannot_hold(self):
        context = self.host(1)
        source, target = context.allocate(64), context.allocate(64)
        plan = context.plan().add(source=source, target=target, row_bytes=64).commit()
        for base in (-1, 1 << 64):
            with self.assertRaisesRegex(ceoverlap.InvalidError, f"base {base}"):
                plan.launch(base)
        plan.launch(np.uint64(3)).wait()

    def test_gated(self):
        context = self.host()
        a = np.full(4096, 9, np.uint8)
        source, target, ready = context.register(a, 0), context.allocate(4096, 1), \
            context.signal()
        plan = context.plan(0).expect(ready.mark())
        plan.add(source=source, target=target, row_bytes=4096, source_ready=ready.mark())
        ticket = plan.commit().launch(producer_stream=1)
        self.assertFalse(ticket.is_done())
        ready.raise_to(1)
        ticket.wait()
        self.assertTrue((target.view() == 9).all())

    def test_floating(self):
        context = self.host()
        floating, target = context.floating(256, 0), context.allocate(1024, 1)
        plan = context.plan(0)
        for i in range(4):
            plan.add(source=floating, target=Spot(target, 256 * i), row_bytes=256)
        plan.commit()
        view = target.view()
        self.assertIsNone(floating.address())
        for k in range(20):
            plan.launch(floating=np.full(256, k, np.uint8)).wait()
            self.assertTrue((view == k).all())
        self.assertLess(len(plan._in_flight), 3)
        for memory in (None, np.zeros(255, np.uint8)):
            with self.assertRaises(ceoverlap.InvalidError):
                plan.launch(floating=memory)

    def test_memory_of_a_floating_launch_is_kept(self):
        context = self.host()
        floating, target, ready = context.floating(256, 0), context.allocate(256, 1), \
            context.signal()
        plan = context.plan(0).expect(ready.mark())
        plan.add(source=floating, target=target, row_bytes=256, source_ready=ready.mark())
        memory = np.full(256, 7, np.uint8)
        gone = weakref.ref(memory)
        ticket = plan.commit().launch(floating=memory)
        del memory
        gc.collect()
        self.assertIsNotNone(gone())
        ready.raise_to(1)
        ticket.wait()
        self.assertTrue((target.view() == 7).all())

    def test_abort(self):
        context = self.host()
        ready = context.signal()
        plan = context.plan(0).expect(ready.mark())
        plan.add(source=context.allocate(64, 0), target=context.allocate(64, 1), row_bytes=64,
                 source_ready=ready.mark()).commit()
        ticket = plan.launch()
        with self.assertRaises(ceoverlap.PendingError):
            ticket.wait(timeout_s=0.01)
        self.assertTrue(ticket.abort())
        with self.assertRaises(ceoverlap.AbortedError):
            ticket.wait()
        self.assertFalse(ticket.abort())
        with self.assertRaises(ceoverlap.AbortedError):
            ready.has_reached(0)
        ready.renew()
        ready.raise_to(1)
        plan.launch().wait()

    def test_a_full_engine(self):
        context = self.host()
        ready = context.signal()
        plan = context.plan(0).expect(ready.mark())
        plan.add(source=context.allocate(64, 0), target=context.allocate(64, 1), row_bytes=64,
                 source_ready=ready.mark()).commit()
        tickets = []
        with self.assertRaises(ceoverlap.FullError):
            for _ in range(100000):
                tickets.append(plan.launch())
        ready.raise_to(1)
        for ticket in tickets:
            ticket.wait()
        plan.launch().wait()

    def test_refusals_name_the_transfer(self):
        context = self.host()
        source, target = context.allocate(64, 0), context.allocate(64, 1)
        plan = context.plan(0).add(source=source, target=target, row_bytes=32)
        plan.add(source=source, target=Spot(target, 48), row_bytes=32)
        with self.assertRaises(ceoverlap.InvalidError) as caught:
            plan.commit()
        self.assertIn("transfer 1", str(caught.exception))
        waits = context.plan(0).add(source=source, target=target, row_bytes=32,
                                    source_ready=context.signal().mark())
        with self.assertRaisesRegex(ceoverlap.InvalidError, "transfer 0"):
            waits.commit()
        with self.assertRaises(ceoverlap.StateError):
            waits.launch()
        with self.assertRaises(ceoverlap.InvalidError):
            context.plan(0).add(source=source, target=target, row_bytes=-1)
        source.close()
        with self.assertRaises(ceoverlap.StateError):
            context.plan(0).add(source=source, target=target, row_bytes=32)

    def test_a_plan_that_nobody_holds_ends_its_launches(self):
        context = self.host()
        a = np.full(1 << 20, 3, np.uint8)
        target = context.allocate(a.nbytes, 1)
        view = target.view()
        for k in range(10):
            view[:] = 0
            context.plan(0).add(source=context.register(a, 0), target=target,
                                row_bytes=a.nbytes).commit().launch()
            gc.collect()
            self.assertTrue(until(lambda: (view == 3).all()))
        self.assertTrue(until(lambda: context.signal().release() and
                              not context._lingering))


if __name__ == "__main__":
    unittest.main()
