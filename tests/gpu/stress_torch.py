# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Many streams of an application that wait for marks, beside PyTorch's kernels and allocator,
in one process with two ranks on one GPU. Run by tests/gpu/check_stress.sh.

    CEOVERLAP_STRESS_SECONDS   how long (default 600)
    CEOVERLAP_TEST_SEED        of sizes, data and order; printed

Each round makes 40 of 64 streams wait, each for the marks of one launch: from host memory to
the GPU, back, or from one rank's memory to the other's. The engines move the bytes when the
host says so, one launch after the other, in any order, when all the streams wait or already
while they are made to, and kernels go to the other 24 streams meanwhile:
products, and memory of any size that is allocated, filled, compared and freed. What
arrived is compared behind the wait, by a kernel on the stream that waited, or by the host.

No mark depends on a kernel that is queued after the wait for it: from 8 waiting streams on
the driver starts no new kernel, so kernels go on when a round's last marks are raised. A
round that is not over within STALL_S has stood still: the script says which streams and
launches are late, aborts the launches, and exits with 1. It exits with 77 where there is no
PyTorch or no GPU."""

import contextlib
import faulthandler
import os
import random
import sys
import threading
import time

# A kernel that is loaded while a stream waits would hold back the copy that it waits for.
os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
# With the 8 hardware queues that there are otherwise, a small copy can stand behind the stream
# that waits for it (docs/internals/waiting.md).
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")

try:
    import torch
except ImportError as missing:
    print(f"SKIP: no PyTorch ({missing})")
    sys.exit(77)

import ceoverlap

N_STREAMS, N_WAITING = 64, 40
STALL_S = 20.0                          # a round takes some 0.1 s
ABORT_S = 10.0                          # for an abort and the last look, then the process ends
LINE_S = 10.0                           # between two lines of progress
WORDS_MAX = 1 << 20                     # of a launch, 4 bytes each
PIECES_MAX = 3                          # transfers of a launch, each with a mark of its own
HELD_MAX_S = 0.1                        # how long all of a round's streams wait
GAP_MAX_S = 0.002                       # between two launches that may go
CALLS_MAX = 4                           # kernels' calls for a stream and round: queues are short
BLOCK_BYTES_MAX = 8 << 20               # of memory that kernels' calls allocate
RENEW_ROUNDS = 50                       # then the allocator gives all back and begins anew
PRODUCTS = ((64, 256, 128), (256, 256, 256), (512, 1024, 256))
DTYPES = (torch.float32, torch.bfloat16)
WAYS = ("host to GPU", "GPU to host", "rank to rank")
SEED = int(os.environ.get("CEOVERLAP_TEST_SEED") or random.randrange(1 << 20))
SECONDS = float(os.environ.get("CEOVERLAP_STRESS_SECONDS") or 600)
GPU = torch.device("cuda", 0)


def say(text: str) -> None:
    print(text, flush=True)


def zeros_like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(tensor, pin_memory=not tensor.is_cuda)


class Slot:
    """One launch of each round: its plan, its memory, and where it stands. Data are a pattern
    that the host and the GPU know, each word xor the round's key."""

    def __init__(self, context, number, go, choice):
        self.number, self.go = number, go
        self.way = WAYS[number % len(WAYS)]
        self.rank = choice.randrange(2)             # whose plan it is
        self.waiter = 1 - self.rank if self.way == "rank to rank" else self.rank
        self.pattern_on_host = torch.randint(-2 ** 31, 2 ** 31, (choice.randrange(
            1 << 12, WORDS_MAX),), dtype=torch.int32)
        self.pattern = self.pattern_on_host.to(GPU)
        like = self.pattern, self.pattern_on_host
        # Pinned where it is the host's. Registering pins whole pages, and CUDA refuses to copy
        # pageable memory that begins or ends in a pinned page: a neighbour's, that is.
        self.source = zeros_like(like[self.way == "host to GPU"])
        self.target = zeros_like(like[self.way == "GPU to host"])
        self.wrong = torch.zeros(1, dtype=torch.int64, device=GPU)
        self.key = 0
        self.wrong_on_host = 0
        self.plan, self.marks = self.make_plan(context, choice)
        self.ticket = self.stream = self.event = None
        self.went, self.ended = 0.0, 0.0

    def make_plan(self, context, choice):
        """The plan, and the marks that it raises where the waiting stream is."""
        source = context.register(self.source, rank=self.rank)
        target = context.register(self.target, rank=self.waiter)
        n = choice.randrange(1, PIECES_MAX + 1)
        arrived = context.signal(n, rank=self.waiter, host_visible=True)
        cuts = [0, *sorted(choice.sample(range(1, self.source.numel()), n - 1)),
                self.source.numel()]
        ready = self.go.mark(1, self.number)
        plan = context.plan(rank=self.rank).expect(ready)
        for i, (begin, end) in enumerate(zip(cuts, cuts[1:])):
            plan.add(source=ceoverlap.Spot(source, 4 * begin),
                     target=ceoverlap.Spot(target, 4 * begin), row_bytes=4 * (end - begin),
                     source_ready=ready, then=arrived.mark(1, i))
        self.arrived = arrived
        return plan.commit(), ceoverlap.MarkList(arrived.mark(1, i) for i in range(n))

    @property
    def n_bytes(self) -> int:
        return 4 * self.source.numel()

    def fill(self, key: int) -> None:
        """The source, on the current stream where it is the GPU's."""
        self.key = key
        if self.source.is_cuda:
            torch.bitwise_xor(self.pattern, key, out=self.source)
        else:
            torch.bitwise_xor(self.pattern_on_host, key, out=self.source)

    def compare(self) -> None:
        """Behind the wait, on the current stream."""
        if self.target.is_cuda:
            self.wrong += ((self.target ^ self.pattern) != self.key).sum()

    def compare_on_host(self) -> None:
        """Once the stream has gone on."""
        if not self.target.is_cuda:
            self.wrong_on_host += ((self.target ^ self.pattern_on_host) != self.key).sum().item()

    def told(self) -> str:
        """Where it stands, without a call of the CUDA driver."""
        values = []
        try:
            state = "done" if self.ticket is None or self.ticket.is_done() else "in flight"
            values += [self.arrived.value(i) for i in range(len(self.marks))]
        except ceoverlap.CeoverlapError as error:
            state = f"failed: {error}"
        return (f"{self.way}, {self.n_bytes} bytes of rank {self.rank}, launch "
                f"{self.ticket.number if self.ticket else '-'} is {state}, "
                f"{'may go' if self.went else 'is held'}, marks {values}")


class Beside:
    """What runs on streams that wait for nothing of ours."""

    def __init__(self):
        self.wrong = torch.zeros(1, dtype=torch.int64, device=GPU)
        self.n_calls = 0
        self.operands = {}
        for m, n, k in PRODUCTS:
            for dtype in DTYPES:
                shapes = (m, k), (k, n)
                self.operands[m, n, k, dtype] = [torch.randn(shape, device=GPU).to(dtype)
                                                 for shape in shapes]

    def multiply(self, shape) -> None:
        a, b = self.operands[shape]
        torch.mm(a, b)

    def allocate(self, n_bytes: int, key: int) -> None:
        """Fresh memory, which nobody else may write to."""
        words = torch.full((n_bytes // 4,), key, dtype=torch.int32, device=GPU)
        self.wrong += (words.clone() != key).sum()

    def call(self, choice) -> None:
        """On the current stream."""
        self.n_calls += 1
        if choice.random() < 0.5:
            self.multiply(choice.choice(list(self.operands)))
        else:
            self.allocate(int(2 ** choice.uniform(9, 23)), choice.randrange(1 << 31))

    def warm(self) -> None:
        """All that call() may ask for, once, and memory for more of it."""
        for shape in self.operands:
            self.multiply(shape)
        for n_bytes in (512, 1 << 19, BLOCK_BYTES_MAX):
            self.allocate(n_bytes, 1)
        kept = [torch.empty(n_bytes, dtype=torch.uint8, device=GPU)
                for n_bytes in (2 << 20, 8 * BLOCK_BYTES_MAX)]
        del kept


class Watch(threading.Thread):
    """Ends the process where a round stands still, also where the main thread hangs in a call."""

    def __init__(self, stress):
        super().__init__(daemon=True)
        self.stress = stress
        self.step, self.until = "", float("inf")

    def begins(self, step: str) -> None:
        self.step, self.until = step, time.monotonic() + STALL_S
        faulthandler.dump_traceback_later(STALL_S + 2 * ABORT_S, exit=True)

    def steps(self, step: str) -> None:
        """Within the same bound."""
        self.step = step

    def ends(self) -> None:
        self.until = float("inf")
        faulthandler.cancel_dump_traceback_later()

    def run(self) -> None:
        while time.monotonic() < self.until:
            time.sleep(0.2)
        self.stress.stop(self.step)


class Stress:
    """All rounds."""

    def __init__(self):
        self.choice = random.Random(SEED)
        torch.manual_seed(SEED)
        self.context = ceoverlap.Context(range(2), place=("gpu:0", "gpu:0"),
                                         deadline_s=2 * STALL_S)
        self.streams = some_streams()
        self.events = [torch.cuda.Event() for _ in self.streams]
        self.go = self.context.signal(N_WAITING, rank=0, place="host")
        self.slots = [Slot(self.context, i, self.go, self.choice) for i in range(N_WAITING)]
        self.beside = Beside()
        self.watch = Watch(self)
        self.n_rounds, self.n_bytes, self.worst_s, self.worst = 0, 0, 0.0, "none"
        self.longest_s = 0.0
        self.is_early = False           # launches go while streams are made to wait
        self.pending = {}               # stream's number: what it waits for

    def warm(self) -> None:
        """Every kernel is loaded and every stream's memory is there before a stream waits."""
        self.fill()
        for stream in self.streams:
            with torch.cuda.stream(stream):
                self.beside.warm()
                for slot in self.slots:
                    slot.compare()
        torch.cuda.synchronize()
        for slot in self.slots:         # the targets were still empty
            slot.wrong.zero_()
        torch.cuda.synchronize()

    def fill(self) -> None:
        """New data for all launches, and waits for them: kernels come before waits."""
        with torch.cuda.stream(self.streams[0]):
            for slot in self.slots:
                slot.fill(self.choice.randrange(-2 ** 31, 2 ** 31))
        self.events[0].record(self.streams[0])
        while not self.events[0].query():
            time.sleep(0.0002)

    def round(self) -> None:
        begin = time.monotonic()
        self.watch.begins("filling the sources")
        if self.n_rounds % RENEW_ROUNDS == RENEW_ROUNDS - 1:
            torch.cuda.empty_cache()
            self.warm()
        self.fill()
        order = self.choice.sample(range(N_STREAMS), N_STREAMS)
        self.launch(order)
        raiser = threading.Thread(target=self.raise_all, args=(self.choice.random(),))
        self.is_early = self.choice.random() < 0.5
        if self.is_early:
            raiser.start()
        self.make_wait(order)
        if not self.is_early:
            raiser.start()
        self.watch.steps("queueing kernels beside waiting streams")
        self.call_beside(order[N_WAITING:])
        for number in order[N_WAITING:]:
            self.events[number].record(self.streams[number])
        self.watch.steps("waiting for the round's streams")
        self.await_all(order)
        raiser.join()
        self.check()
        self.watch.ends()
        self.n_rounds += 1
        self.longest_s = max(self.longest_s, time.monotonic() - begin)

    def launch(self, order) -> None:
        """Kernels on some streams, and launches that are held."""
        self.watch.steps("launching")
        self.call_beside(order[N_WAITING:])
        self.pending = dict.fromkeys(order)
        for slot in self.slots:
            slot.went = slot.ended = 0.0
            slot.ticket = slot.plan.launch(self.n_rounds)

    def make_wait(self, order) -> None:
        """Each of the other streams for one of the launches; then it compares."""
        self.watch.steps("making streams wait")
        for slot, number in zip(self.slots, order):
            slot.stream, slot.event = self.streams[number], self.events[number]
            self.context.stream_wait(slot.stream, slot.marks, self.n_rounds, slot.waiter)
            with torch.cuda.stream(slot.stream):
                slot.compare()
            slot.event.record(slot.stream)
            self.pending[number] = slot

    def call_beside(self, numbers) -> None:
        for number in numbers:
            with torch.cuda.stream(self.streams[number]):
                for _ in range(self.choice.randrange(1, CALLS_MAX + 1)):
                    self.beside.call(self.choice)

    def raise_all(self, seed: float) -> None:
        """A thread of its own, which calls no driver: nothing can keep it from raising."""
        choice = random.Random(seed)
        if not self.is_early:
            time.sleep(choice.random() * HELD_MAX_S)
        for slot in choice.sample(self.slots, len(self.slots)):
            slot.went = time.monotonic()
            self.go.raise_to(self.n_rounds + 1, slot.number)
            time.sleep(choice.random() * GAP_MAX_S)

    def await_all(self, order) -> None:
        """Till all streams of the round are empty; the watch knows the bound."""
        while self.pending:
            for number in [one for one in self.pending if self.events[one].query()]:
                slot = self.pending.pop(number)
                if slot is not None:
                    slot.ended = time.monotonic()
            time.sleep(0.0005)

    def check(self) -> None:
        """All launches are done, and all data right."""
        self.watch.steps("comparing")
        for slot in self.slots:
            slot.ticket.wait(STALL_S)
            slot.compare_on_host()
            self.n_bytes += slot.n_bytes
            if slot.ended - slot.went > self.worst_s:
                self.worst_s, self.worst = slot.ended - slot.went, slot.way
        wrong = torch.cat([slot.wrong for slot in self.slots] + [self.beside.wrong]).tolist()
        for slot, n in zip(self.slots, wrong):
            if n + slot.wrong_on_host:
                raise AssertionError(f"round {self.n_rounds}: {n + slot.wrong_on_host} words "
                                     f"are wrong: {slot.told()}")
        if wrong[-1]:
            raise AssertionError(f"round {self.n_rounds}: {wrong[-1]} words of memory that "
                                 "PyTorch allocated were overwritten")

    def stop(self, step: str) -> None:
        """Tells what is late, aborts it, and ends the process, from the watch's thread."""
        say(f"FAIL: round {self.n_rounds} stood still for {STALL_S} s while {step}; launches "
            f"went {'while streams were made to wait' if self.is_early else 'after that'}")
        late = dict(self.pending)
        for number, slot in late.items():
            what = "kernels only" if slot is None else slot.told()
            say(f"  stream {number} ({self.streams[number].cuda_stream:#x}): {what}")
        failure = self.context.last_failure()
        say(f"  the library's first failure: {failure.text if failure else 'none'}")
        faulthandler.dump_traceback(all_threads=True)
        sys.stderr.flush()
        faulthandler.dump_traceback_later(ABORT_S, exit=True)   # where the abort hangs, too
        n = sum(self.abort(slot) for slot in late.values() if slot is not None)
        say(f"  aborted {n} launches of {len(late)} streams that were late")
        os._exit(1)

    @staticmethod
    def abort(slot) -> bool:
        with contextlib.suppress(ceoverlap.CeoverlapError):
            return slot.ticket is not None and slot.ticket.abort()
        return False

    def progress(self, seconds: float) -> str:
        return (f"{seconds:6.0f} s: {self.n_rounds} rounds, {self.n_rounds * N_WAITING} waits, "
                f"{self.n_bytes / 1e9:.1f} GB, {self.beside.n_calls} calls beside; the worst "
                f"wait {self.worst_s * 1e3:.1f} ms ({self.worst}), the longest round "
                f"{self.longest_s * 1e3:.0f} ms")

    def run(self) -> None:
        begin = line = time.monotonic()
        self.watch.start()
        while time.monotonic() - begin < SECONDS:
            self.round()
            if time.monotonic() - line >= LINE_S:
                line = time.monotonic()
                say(self.progress(line - begin))
        say(f"stress: {self.progress(time.monotonic() - begin)}")


def some_streams():
    """PyTorch keeps 32 streams of each priority and hands them out in turn."""
    streams = [torch.cuda.Stream(GPU, priority=-(i % 2)) for i in range(N_STREAMS)]
    if len({stream.cuda_stream for stream in streams}) != N_STREAMS:
        raise AssertionError(f"PyTorch has not {N_STREAMS} streams of two priorities")
    return streams


def main() -> int:
    print(f"CEOVERLAP_TEST_SEED={SEED}")
    if not torch.cuda.is_available():
        print("SKIP: no GPU")
        return 77
    faulthandler.enable()
    torch.cuda.set_device(GPU)
    say(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name(GPU)}, 2 ranks, "
        f"{N_WAITING} of {N_STREAMS} streams wait, {SECONDS:.0f} s")
    stress = Stress()
    begin = time.monotonic()
    stress.warm()
    say(f"kernels are loaded: {time.monotonic() - begin:.1f} s")
    stress.run()
    torch.cuda.synchronize()
    stress.context.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
