# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The memory that all-gathers fill ahead of the computation."""

import gc
import unittest
from unittest import mock

import torch

from ceoverlap.torch._pool import PAUSE
from ceoverlap.torch.fsdp._pools import Pools


class Order(unittest.TestCase):
    def test_memory_waits_for_who_used_it(self):
        """With PyTorch's part played: a pool's third user waits for its first one alone."""
        gathers, computes = mock.Mock(cuda_stream=1), mock.Mock(cuda_stream=2)
        events = [mock.Mock(), mock.Mock()]
        with mock.patch.multiple(torch.cuda, MemPool=mock.Mock(side_effect=["A", "B"]),
                                 Event=mock.Mock(side_effect=events),
                                 current_stream=mock.DEFAULT, device=mock.MagicMock(),
                                 use_mem_pool=mock.MagicMock()) as patched:
            patched["current_stream"].return_value = gathers
            pools = Pools(torch.device("cuda", 0))
            for expected in (0, 1):
                with pools.allocating() as number:
                    self.assertEqual(number, expected)
            gathers.wait_event.assert_not_called()
            patched["current_stream"].return_value = computes
            pools.release(0)
            events[0].record.assert_called_once_with(computes)
            patched["current_stream"].return_value = gathers
            with pools.allocating() as number:
                self.assertEqual(number, 0)
            gathers.wait_event.assert_called_once_with(events[0])
            gathers.wait_event.reset_mock()
            with pools.allocating() as number:
                self.assertEqual(number, 1)
                with PAUSE:            # another thread's
                    self.assertFalse(gc.isenabled())
                self.assertFalse(gc.isenabled())
            self.assertTrue(gc.isenabled())
            gathers.wait_event.assert_not_called()
            self.assertEqual([call.args[0] for call in torch.cuda.use_mem_pool.mock_calls
                              if call.args and isinstance(call.args[0], str)],
                             ["A", "B", "A", "B"])


if __name__ == "__main__":
    unittest.main()
