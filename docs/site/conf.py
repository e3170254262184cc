# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Sphinx's settings for the site; build.sh copies what it is made of, and sets the environment."""

import logging
import os

project = "ceoverlap"
author = "The ceoverlap developers"
copyright = author
version = release = os.environ["CEOVERLAP_SITE_VERSION"]

extensions = ["myst_parser", "breathe"]
root_doc = "index"
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["include", "examples"]
html_theme = "alabaster"
html_theme_options = {"description": "moves data between GPUs by their copy engines",
                      "page_width": "1100px", "sidebar_width": "260px"}
html_show_sphinx = False

myst_heading_anchors = 4
myst_enable_extensions = []
# Results quote other programs' output, and blocks that no lexer knows are text.
highlight_language = "none"

breathe_projects = {"ceoverlap": os.environ["CEOVERLAP_SITE_XML"]}
breathe_default_project = "ceoverlap"
breathe_domain_by_extension = {"h": "c", "cuh": "cpp"}

# Names of types in signatures that two modules have.
suppress_warnings = ["ref.python"]


def is_no_tag(record):
    """A call and the struct of its arguments share a name, as C allows, and Sphinx 5 warns of it."""
    return "Duplicate C declaration" not in record.getMessage()


logging.getLogger("sphinx.sphinx.domains.c").addFilter(is_no_tag)
