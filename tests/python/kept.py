# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""A log handler for tests."""

import logging


class Kept(logging.Handler):
    """Keeps lines and prints none."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.records = []

    def emit(self, record):
        self.records.append(record)

    def lines(self, level=logging.DEBUG):
        return [record.getMessage() for record in self.records if record.levelno >= level]
