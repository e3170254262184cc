# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Ranks that die or do not come: the other one gets an exception in time."""

import os
import time
import unittest

import rig
import torch

from ceoverlap import errors
from ceoverlap.torch import Group, Operators, all_gather_matmul, all_reduce

DEADLINE_S = rig.patience(3.0)
LATER_S = rig.patience(20.0)            # for what ends by a deadline on a busy machine

_groups = []                            # of a rank, from one function to the next


def starts():
    """Each rank has run a shape with all of them."""
    group = Group(deadline_s=DEADLINE_S)
    _groups.append(group)
    x = torch.ones(4, 16, device=group.device)
    for _ in range(3):
        all_reduce(x, group)
        all_gather_matmul(x.bfloat16(), x.bfloat16().repeat(2, 1), group)
    if group.is_gpu:
        torch.cuda.synchronize()


def loses(how):
    """Rank 1 goes, by dying or by staying away; what the others were told."""
    group = _groups[-1]
    if group.rank == 1:
        if how == "dies":
            os._exit(9)
        return None
    x = torch.ones(4, 16, device=group.device)
    start = time.monotonic()
    try:
        for _ in range(40):             # a GPU's runs are only queued
            all_reduce(x, group)
            if group.is_gpu:
                torch.cuda.synchronize()
            group.part(Operators).check()
    except errors.CeoverlapError as error:
        return type(error).__name__, str(error), time.monotonic() - start
    return "nothing", "", time.monotonic() - start


def makes_new():
    """A shape that nobody has run yet, without rank 1."""
    group = _groups[-1]
    if group.rank == 1:
        return None
    start = time.monotonic()
    try:
        all_reduce(torch.ones(480, device=group.device), group)
    except errors.CeoverlapError as error:
        return type(error).__name__, str(error), time.monotonic() - start
    return "nothing", "", time.monotonic() - start


class Failures(unittest.TestCase):

    def lose(self, function, *args, dying=()):
        world = rig.World(2)
        try:
            world.run(starts)
            told = world.run(function, *args, dying=dying, limit_s=3 * LATER_S)
        finally:
            if world.is_open:
                world.kill()
        for rank in set(range(world.size)) - {1}:
            kind, text, seconds = told[rank]
            self.assertIn(kind, ("PeerLostError", "DeadlineError", "AbortedError"), told)
            self.assertIn("rank", text)
            self.assertLess(seconds, DEADLINE_S + LATER_S, told)

    def setUp(self):
        self.assertGreater(rig.SIZE, 1)

    def test_a_rank_dies(self):
        self.lose(loses, "dies", dying=(1,))

    def test_a_rank_stays_away(self):
        self.lose(loses, "stays away")

    def test_a_rank_stays_away_from_a_new_shape(self):
        self.lose(makes_new)


if __name__ == "__main__":
    unittest.main()
