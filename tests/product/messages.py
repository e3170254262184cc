# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""messages.py TOP PAGE: each message that a page quotes at the begin of a table's row, as
| `message` |, is one of the program's: what stands between its "..." is in a text of src/, tools/
or python/. Texts that a compiler would join are joined, and %u and the like end a part."""

import os
import re
import sys


def texts_of(top):
    """All texts of the sources, with adjacent ones joined."""
    joined = []
    for folder, end in (("src", (".c", ".h", ".cuh")), ("tools", (".c", ".py")),
                        ("python", (".py",))):
        for where, _, names in os.walk(os.path.join(top, folder)):
            for name in names:
                if name.endswith(end):
                    with open(os.path.join(where, name), encoding="utf-8") as file:
                        code = file.read()
                    joined.append(re.sub(r'"\s*(?:PRI\w+\s*)?f?"', "", code))
    return "\n".join(joined).replace('\\"', '"')


def main():
    top, page = sys.argv[1:]
    with open(page, encoding="utf-8") as file:
        messages = re.findall(r"^\| `([^`]+)`", file.read(), re.M)
    texts = texts_of(top)
    failed = [part for message in messages for part in message.split("...")
              if part.strip() and part.strip() not in texts]
    for part in failed:
        print(f"FAIL: {page} quotes a message that nothing says: {part.strip()}")
    print(f"{len(messages)} messages")
    sys.exit(1 if failed or not messages else 0)


if __name__ == "__main__":
    main()
