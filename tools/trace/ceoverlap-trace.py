# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""ceoverlap-trace: joins the trace files of a group's processes into one, in which all times are of
one clock, and reports how much of the time communication was exposed. Each node's clock is
converted by the offsets in the file of the process that measured them. The library describes these
fields where it writes them (src/ce_engine/engine/trace_origin.h).

All files are read and checked before the first byte is written; then they are read again, event by
event, so memory grows with the number of files only, and for reports with that of copies and
kernels. Files are not trusted: what is no such file is refused, whatever its bytes are.

The program is one file, made of the files of tools/trace in the order of what stands on what."""

import argparse
import os
import sys

from joining import join
from reading import VERSION
from report import report

MERGE_USAGE = "%(prog)s [merge] [OPTION...] -o FILE TRACE..."
REPORT_USAGE = "%(prog)s report [OPTION...] TRACE..."


def new_parser(usage, more, epilog):
    parser = argparse.ArgumentParser(prog=os.path.basename(sys.argv[0]), add_help=False,
                                     usage=usage, description=more, epilog=epilog)
    parser.add_argument("-?", "--help", action="help", help="Give this help list")
    parser.add_argument("-V", "--version", action="version", version=f"ceoverlap {VERSION}",
                        help="Print program version")
    parser.add_argument("traces", metavar="TRACE", nargs="*",
                        help="A file of one process, or one that PyTorch's profiler wrote for it")
    return parser


def merge_parser():
    parser = new_parser(
        f"{MERGE_USAGE}\n       {REPORT_USAGE}",
        "Joins the trace files that the processes of a group have written (CEOVERLAP_TRACE) into "
        "one for ui.perfetto.dev or chrome://tracing, with all times on the clock of rank 0's "
        "node. With files of PyTorch's profiler among them (export_chrome_trace), all times are "
        "on the profiler's clock, and a counter shows the exposed communication. Of a node whose "
        "clock's offset is not known, times stay those of its own clock, and a warning says so. "
        "\"report\" prints instead how long communication was exposed: see %(prog)s report "
        "--help.",
        "Exit status: 0 when the file was written, also with warnings; 1 when a file cannot be "
        "read, is no trace, or is of another group, or the result cannot be written; 2 on unusable "
        "arguments.")
    parser.add_argument("-o", "--output", metavar="FILE",
                        help="The file to write, which replaces an older one")
    return parser


def report_parser():
    parser = new_parser(
        REPORT_USAGE,
        "Prints for each rank how long it computed, communicated, communicated without computing "
        "meanwhile (exposed), and did neither (idle); and what was exposed by operator, by group "
        "and by chunk, with the rank whose mark came last. What was computed is in the files of "
        "PyTorch's profiler: name them beside those of ceoverlap (CEOVERLAP_TRACE).",
        "Exit status: 0; 2 when a file cannot be read or is no trace, the picture cannot be "
        "written, or on unusable arguments.")
    parser.add_argument("--chunks", metavar="N", type=int, default=10,
                        help="How many chunks the text has (default 10)")
    parser.add_argument("--json", action="store_true", help="Print JSON, with all chunks")
    parser.add_argument("--svg", metavar="FILE", help="Draw a picture of it, too")
    return parser


def main():
    words = sys.argv[1:]
    command = words.pop(0) if words and words[0] in ("merge", "report") else "merge"
    parser = report_parser() if command == "report" else merge_parser()
    asked = parser.parse_args(words)
    if command == "merge" and not asked.output:
        parser.error("say with -o which file to write")
    if not asked.traces:
        parser.error("no file was named")
    if command == "report" and asked.chunks < 0:
        parser.error("--chunks is a number from 0 on")
    return report(asked) if command == "report" else join(asked.traces, asked.output)


if __name__ == "__main__":
    sys.exit(main())
