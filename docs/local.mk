# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# What is made of the documents: "make site" (by Sphinx and Doxygen) and a manual page of section 3
# for each public call (by Doxygen), which "make install" installs where there is Doxygen. Neither is
# in the release.
.PHONY: site man3
site:
	@$(srcdir)/%D%/site/build.sh site .

man3:
	@$(srcdir)/%D%/site/build.sh man .

install-data-local:
	@if ! command -v doxygen > /dev/null || ! command -v python3 > /dev/null; then \
		echo "no Doxygen: the manual pages of calls (section 3) are not installed"; \
	else \
		$(srcdir)/%D%/site/build.sh man . && \
		$(MKDIR_P) "$(DESTDIR)$(mandir)/man3" && \
		$(INSTALL_DATA) man3/ceov_*.3 "$(DESTDIR)$(mandir)/man3"; \
	fi

uninstall-local:
	-rm -f "$(DESTDIR)$(mandir)"/man3/ceov_*.3
