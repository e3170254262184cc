# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""One transfer between two ranks of this process, on host memory, so that it runs anywhere:
the producer raises a mark, the runtime moves the bytes and raises a mark behind them, the
consumer waits for that one."""

import numpy as np

import ceoverlap

values = np.zeros(1 << 18, np.uint32)

with ceoverlap.Context(ranks=range(2), place="host") as context:
    source = context.register(values, rank=0)
    target = context.allocate(values.nbytes, rank=1)
    ready, arrived = context.signal(rank=0), context.signal(rank=1)
    plan = context.plan(rank=0).expect(ready.mark(1))
    plan.add(source=source, target=target, row_bytes=values.nbytes,
             source_ready=ready.mark(1), then=arrived.mark(1)).commit()
    for k in range(3):                          # base k: marks mean k + 1
        ticket = plan.launch(base=k)
        values[:] = 42 + k                      # the producer
        ready.raise_to(k + 1)
        arrived.wait(k + 1)                     # the consumer
        assert (target.view(np.uint32) == 42 + k).all()
        ticket.wait()

print(f"one transfer, three times, with ceoverlap {ceoverlap.__version__}: done")
