# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ceoverlap-trace: joins the trace files of a group's processes, and reports what they show. One
# script, so that it runs from wherever it is put: its files stand in it in the order of what stands
# on what, without the lines by which they import each other.
trace_parts = %D%/reading.py %D%/parts.py %D%/clocks.py %D%/kineto.py %D%/timeline.py %D%/spans.py \
	%D%/exposure.py %D%/joining.py %D%/picture.py %D%/report.py %D%/ceoverlap-trace.py
bin_SCRIPTS += ceoverlap-trace
CLEANFILES += ceoverlap-trace
EXTRA_DIST += $(trace_parts)
ceoverlap-trace: $(trace_parts) Makefile
	$(AM_V_GEN){ echo '#!/usr/bin/env python3'; \
		sed -e 's/[@]VERSION[@]/$(VERSION)/' \
			-e '/^from [a-z]* import /d' \
			$(addprefix $(srcdir)/,$(trace_parts)); } > $@.new
	@chmod 755 $@.new && mv -f $@.new $@
dist_bashcompletion_DATA += %D%/completions/ceoverlap-trace
