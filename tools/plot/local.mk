# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ceoverlap-plot: pictures of what ceoverlap-bench sweep has measured
bin_SCRIPTS += ceoverlap-plot
CLEANFILES += ceoverlap-plot
EXTRA_DIST += %D%/ceoverlap-plot.py
ceoverlap-plot: %D%/ceoverlap-plot.py Makefile
	$(AM_V_GEN)sed 's/[@]VERSION[@]/$(VERSION)/' $(srcdir)/%D%/ceoverlap-plot.py > $@.new
	@chmod 755 $@.new && mv -f $@.new $@
dist_bashcompletion_DATA += %D%/completions/ceoverlap-plot
