# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ceoverlap-trace: joins the trace files of a group's processes
bin_SCRIPTS += ceoverlap-trace
CLEANFILES += ceoverlap-trace
EXTRA_DIST += %D%/ceoverlap-trace.py
ceoverlap-trace: %D%/ceoverlap-trace.py Makefile
	$(AM_V_GEN)sed 's/[@]VERSION[@]/$(VERSION)/' $(srcdir)/%D%/ceoverlap-trace.py > $@.new
	@chmod 755 $@.new && mv -f $@.new $@
