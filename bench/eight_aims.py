# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""What a run of eight.sh reached of the project's aims, which are for 8 GPUs. Used by
eight_summary.py.

An aim is the least or the most that its values may be; a value has a name, which says of what it
is. The functions take the rows of a JSON file, or of all files of a kind."""

import statistics

MIB = 2**20
LARGE = ("llama70b", "qwen72b", "gpt3")
SMALL = ("llama7b", "llama8b")


def times(methods, names):
    found = [methods[name]["us_median"] for name in names
             if methods.get(name, {}).get("us_median")]
    return min(found) if found else None


def fastest(rows):
    """By case, size and mode, the fastest trigger's time. Rows of pairs are left out."""
    found = {}
    for row in rows:
        if row["us_median"] and row.get("source") is None:
            key = (row["case"], row["bytes_per_rank"], row["mode"])
            found[key] = min(found.get(key, row["us_median"]), row["us_median"])
    return found


def beside(rows, case, sizes, modes):
    """Times of other ways divided by ours."""
    found = fastest(rows)
    return [(f"{case}, {size} MiB, {mode}",
             found[case, size * MIB, mode] / found[case, size * MIB, "ours"])
            for size in sizes for mode in modes
            if {(case, size * MIB, mode), (case, size * MIB, "ours")} <= set(found)]


def at_pair_rate(rows, links, case, size):
    """What (N - 1) x size take at the median rate of the pairs of GPUs, divided by ours."""
    rates = [link["gb_per_s"] for link in links
             if link["from"].startswith("gpu") and link["to"].startswith("gpu")]
    return [(case, (row["ranks"] - 1) * size * MIB / statistics.median(rates) / 1e3 /
             row["us_median"])
            for row in rows if rates and row["case"] == case and row["mode"] == "ours" and
            row["us_median"] and row["bytes_per_rank"] == size * MIB and
            row["us_median"] == fastest(rows)[case, size * MIB, "ours"]]


def products(rows, operator, models, tokens):
    for row in rows:
        if row.get("operator") == operator and row.get("model") in models and \
                row["m"] in tokens and "ours" in row["methods"]:
            yield f"{row['model']}, {row['m']}, {row['launch']}", row


def of_ideal(rows, operator):
    return [(name, row["over_ideal"])
            for name, row in products(rows, operator, LARGE, (8192, 16384)) if "over_ideal" in row]


def of_speedup(rows, operator):
    return [(name, row["fraction"])
            for name, row in products(rows, operator, SMALL, (8192, 16384)) if "fraction" in row]


def against(rows, operator, tokens, ways, launches=("stream", "graph")):
    """The time of the fastest of other ways divided by ours."""
    found = []
    for name, row in products(rows, operator, LARGE + SMALL, tokens):
        other = times(row["methods"], ways)
        if other and row["launch"] in launches:
            found.append((f"{operator}, {name}", other / row["methods"]["ours"]["us_median"]))
    return found


def of_relays(rows):
    found = {}
    for row in rows:
        if row["test"] == "host" and row["source"] == "host" and row["in_flight"] == 1 and \
                row.get("us_median"):
            found.setdefault((row["bytes"], row["target"]), {})[row["method"]] = row["us_median"]
    largest = max((key[0] for key in found), default=0)
    return [(f"{target}, {largest // MIB} MiB", ways["direct"] / ways["all"])
            for (size, target), ways in sorted(found.items())
            if size == largest and {"direct", "all"} <= set(ways)]


def of_random(rows):
    return [(row["method"], row["bound_median"]) for row in rows
            if row["test"] == "random" and row["method"] == "scheduler"]


def of_way(found, way):
    return [(way, found[way] / found["ceoverlap"])] if {way, "ceoverlap"} <= set(found) else []


def list_aims(moves, operators, links, sweeps, mlp, fsdp):
    """Tuples of words, "least" or "most", the limit, and values. mlp and fsdp are times by way."""
    both = ("ag_gemm", "gemm_rs")
    named = ("sequence", "sequence_ce", "nccl", "zero-CTA")
    return [
        ("all-gather and all-to-all, 16 to 256 MiB: NCCL's modes / ours", "least", 1,
         [value for case in ("all_gather", "all_to_all")
          for value in beside(moves, case, (16, 64, 256), ("nccl_sm", "nccl_ce"))]),
        ("all-gather, 1 and 4 MiB: zero-CTA / ours", "least", 1.15,
         beside(moves, "all_gather", (1, 4), ("nccl_ce",))),
        ("all-to-all, 1 and 4 MiB: zero-CTA / ours", "least", 1.03,
         beside(moves, "all_to_all", (1, 4), ("nccl_ce",))),
        ("64 MiB: (N - 1) x size at the pair rate / ours", "least", 0.93,
         at_pair_rate(moves, links, "all_gather", 64) +
         at_pair_rate(moves, links, "all_to_all", 64)),
        ("all-gather + GEMM of large models: ours / ideal", "most", 1.15,
         of_ideal(operators, "ag_gemm")),
        ("all-gather + GEMM of small models: of the ideal speed-up", "least", 0.75,
         of_speedup(operators, "ag_gemm")),
        ("GEMM + reduce-scatter of large models: ours / ideal", "most", 1.2,
         of_ideal(operators, "gemm_rs")),
        ("GEMM + reduce-scatter of small models: of the ideal speed-up", "least", 0.65,
         of_speedup(operators, "gemm_rs")),
        ("NCCL and cuBLAS / ours, 8192 and 16384 rows", "least", 1,
         [value for operator in both
          for value in against(operators, operator, (8192, 16384), named)]),
        ("NCCL and cuBLAS / ours, 2048 rows, graph", "least", 1,
         [value for operator in both
          for value in against(operators, operator, (2048,), named, ("graph",))]),
        ("async-TP / ours", "least", 1,
         [value for operator in both
          for value in against(operators, operator, (2048, 8192, 16384), ("async-TP",))]),
        ("host to one GPU: direct / over all paths (1 GiB)", "least", 2.7, of_relays(sweeps)),
        ("random plans: time / what links allow", "most", 1.15, of_random(sweeps)),
        ("MLP block: DTensor / ours", "least", 1.2, of_way(mlp, "dtensor")),
        ("FSDP2: NCCL by copy engines / ours", "least", 1, of_way(fsdp, "NCCL copy engines")),
    ]


def aim_row(words, side, limit, values):
    """Cells: the aim, the range of values that reach it, and each one that does not."""
    reached = [value for _, value in values
               if (value >= limit if side == "least" else value <= limit)]
    missed = [f"{name} {value:.3f}" for name, value in values
              if not (value >= limit if side == "least" else value <= limit)]
    span = f"{min(reached):.3f} to {max(reached):.3f}" if reached else "-"
    return [words, f"at {side} {limit}", f"{len(reached)} of {len(values)}", span,
            "**" + "; ".join(missed) + "**" if missed else "-" if values else "not measured"]
