# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""dist_info.py FOLDER: writes beside the Python package there what pip would have: its name and
version, and its entry points, by which PyTorch finds it."""

import os
import sys
import tomllib


def main():
    with open("VERSION", encoding="ascii") as file:
        version = file.read().strip()
    with open("python/pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    folder = os.path.join(sys.argv[1], f"{project['name']}-{version}.dist-info")
    os.makedirs(folder)
    with open(os.path.join(folder, "METADATA"), "w", encoding="utf-8") as file:
        file.write(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n"
                   f"Summary: {project['description']}\n")
    with open(os.path.join(folder, "entry_points.txt"), "w", encoding="utf-8") as file:
        for group, points in project.get("entry-points", {}).items():
            file.write(f"[{group}]\n")
            file.writelines(f"{name} = {target}\n" for name, target in points.items())


if __name__ == "__main__":
    main()
