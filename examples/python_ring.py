# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""A ring of processes, on host memory: each adds its rank to the number that comes from the one
before it, and passes it on, so that rank 0 gets the sum of all. For any number of processes:

    CEOVERLAP_PLACE=host ceoverlap-run -n 4 python3 python_ring.py

The environment says which rank a process is, and how they meet; torchrun, srun and mpirun set such
variables, too (docs/nodes.md)."""

import numpy as np

import ceoverlap

with ceoverlap.Context() as context:
    rank, n_ranks = context.rank, context.n_ranks
    inbox, outbox = context.allocate(8), context.allocate(8)
    arrived, ready = context.signal(), context.signal()
    inbox.share("inbox")
    arrived.share("arrived")

    # The outbox goes to the next rank's inbox, when it is ready.
    after = (rank + 1) % n_ranks
    plan = context.plan().expect(ready.mark())
    plan.add(source=outbox, target=context.find_buffer(after, "inbox"), row_bytes=8,
             source_ready=ready.mark(), then=context.find_signal(after, "arrived").mark()).commit()
    ticket = plan.launch()

    if rank:                                    # rank 0 begins
        arrived.wait(1)
    outbox.view(np.uint64)[0] = inbox.view(np.uint64)[0] + np.uint64(rank) if rank else 0
    ready.raise_to(1)
    arrived.wait(1)
    ticket.wait()
    if not rank:                                # and ends with the sum
        print(f"a ring of {n_ranks} ranks has passed on {inbox.view(np.uint64)[0]}")
    context.barrier()                           # nobody closes before all are done
