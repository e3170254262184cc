# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""What torch.distributed costs above a call of ceoverlap's: thread time of a call of one rank on
the host, where nothing is moved to anybody, by PyTorch's backend that does nothing ("fake"), by
"ceov", and by ceoverlap's channel alone. The least of many batches, since others use the machine.

    python bench/torch_price.py             # flight recorders off; --records: on
"""

import argparse
import json
import os
import subprocess
import sys
import time
import warnings

N_CALLS, N_BATCHES = 40, 400
RECORDERS = "TORCH_FR_BUFFER_SIZE"      # how much PyTorch's and ceoverlap's write down


def least_us(call):
    """Returns a call's thread time in us."""
    times = []
    for _ in range(N_BATCHES):
        begun = time.thread_time_ns()
        for _ in range(N_CALLS):
            call()
        times.append((time.thread_time_ns() - begun) / N_CALLS / 1e3)
    return round(min(times), 2)


def start(backend):
    import torch.distributed as dist

    if backend == "fake":
        from torch.testing._internal.distributed.fake_pg import FakeStore
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    else:
        dist.init_process_group("cpu:ceov", store=dist.HashStore(), rank=0, world_size=1)


def measure(backend):
    """Prints {name: us} of a backend's calls."""
    import torch
    import torch.distributed as dist

    import ceoverlap.torch as ct

    warnings.simplefilter("ignore")     # of functions that PyTorch has renamed
    start(backend)
    x, y = torch.ones(64), torch.ones(64)
    calls = {"all_gather": lambda: dist.all_gather_into_tensor(y, x),
             "all_reduce": lambda: dist.all_reduce(x),
             "all_gather async": lambda: dist.all_gather_into_tensor(y, x, async_op=True).wait(),
             "all_reduce async": lambda: dist.all_reduce(x, async_op=True).wait()}
    times = {name: least_us(call) for name, call in calls.items()}
    if backend == "ceov":
        channel = ct.Group.of().channel
        times["channel all_gather"] = least_us(lambda: channel.all_gather(y, x))
        times["channel all_reduce"] = least_us(lambda: channel.all_reduce(x))
    dist.destroy_process_group()
    print(json.dumps(times))


def measured(backend, environment):
    done = subprocess.run([sys.executable, __file__, "--backend", backend], env=environment,
                          stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--backend", choices=("fake", "ceov"), help=argparse.SUPPRESS)
    parser.add_argument("--records", action="store_true", help="with the flight recorders")
    options = parser.parse_args()
    if options.backend:
        measure(options.backend)
        return
    environment = {**os.environ, RECORDERS: "256" if options.records else "0"}
    fake, ours = measured("fake", environment), measured("ceov", environment)
    print(f"{'':18}{'fake':>8}{'channel':>9}{'ceov':>8}{'above both':>12}   (us of the thread)")
    for name, us in fake.items():
        channel = ours[f"channel {name.split()[0]}"]
        print(f"{name:18}{us:8.2f}{channel:9.2f}{ours[name]:8.2f}"
              f"{ours[name] - us - channel:12.2f}")


if __name__ == "__main__":
    main()
