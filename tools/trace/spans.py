# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Sets of intervals: sorted lists of (begin, end), none empty, none touching the next."""

import heapq


def union(intervals):
    found = []
    for begin, end in sorted(intervals):
        if begin >= end:
            continue
        if found and begin <= found[-1][1]:
            if end > found[-1][1]:
                found[-1] = (found[-1][0], end)
        else:
            found.append((begin, end))
    return found


def length(intervals):
    return sum(end - begin for begin, end in intervals)


def without(these, others):
    """What of these is not in the others."""
    found, at = [], 0
    for begin, end in these:
        while at < len(others) and others[at][1] <= begin:
            at += 1
        i = at
        while i < len(others) and others[i][0] < end:
            if begin < others[i][0]:
                found.append((begin, others[i][0]))
            begin = max(begin, others[i][1])
            i += 1
        if begin < end:
            found.append((begin, end))
    return found


def share_out(items, intervals):
    """Gives each moment of the intervals to one of the items that last at it: to the one with the
    lowest priority, of these to the one that began first. Items have begin, end and priority, and
    their union has all of the intervals. Returns how much each item got, so the sum of them is the
    length of the intervals."""
    order = sorted((i for i, item in enumerate(items) if item.begin < item.end),
                   key=lambda i: items[i].begin)
    got = [0] * len(items)
    active, following = [], 0
    for begin, end in intervals:
        at = begin
        while at < end:
            while following < len(order) and items[order[following]].begin <= at:
                i = order[following]
                heapq.heappush(active, (items[i].priority, items[i].begin, i))
                following += 1
            while active and items[active[0][2]].end <= at:
                heapq.heappop(active)
            until = end
            if following < len(order):
                until = min(until, items[order[following]].begin)
            if active:
                until = min(until, items[active[0][2]].end)
                got[active[0][2]] += until - at
            at = until
    return got
