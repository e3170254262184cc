# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# The Python packages: ceoverlap, and in lib that of the library and the tools.
EXTRA_DIST += %D%/LICENSE %D%/README.md %D%/pyproject.toml %D%/setup.py %D%/wheels.py \
	%D%/ceoverlap %D%/lib

# Wheels of what was built, in the folder wheels. PYTHON names the Python that has what
# wheels.py needs, WHEELS_FLAGS has options for it.
wheels: libceoverlap.la $(bin_PROGRAMS) $(bin_SCRIPTS)
	$${PYTHON:-python3} $(srcdir)/%D%/wheels.py $(WHEELS_FLAGS) $(builddir) wheels
.PHONY: wheels
