# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# What is made of the documents: "make site" (by Sphinx and Doxygen) and a manual page of section 3
# for each public call (by Doxygen), which "make install" installs where there is Doxygen. Neither is
# in the release. The documents themselves and the examples are installed as they stand in the tree, so
# that their links hold.
installed_docs = README.md ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs examples
.PHONY: site man3
site:
	@$(srcdir)/%D%/site/build.sh site .

man3:
	@$(srcdir)/%D%/site/build.sh man .

install-data-local:
	$(MKDIR_P) "$(DESTDIR)$(docdir)"
	(cd $(srcdir) && find $(installed_docs) -name local.mk -prune -o -path docs/site -prune -o \
		-name __pycache__ -prune -o -type f -print) | while read -r name; do \
		$(MKDIR_P) "$(DESTDIR)$(docdir)/$$(dirname "$$name")" && \
		$(INSTALL_DATA) "$(srcdir)/$$name" "$(DESTDIR)$(docdir)/$$name" || exit 1; \
	done
	@if ! command -v doxygen > /dev/null || ! command -v python3 > /dev/null; then \
		echo "no Doxygen: the manual pages of calls (section 3) are not installed"; \
	else \
		$(srcdir)/%D%/site/build.sh man . && \
		$(MKDIR_P) "$(DESTDIR)$(mandir)/man3" && \
		$(INSTALL_DATA) man3/ceov_*.3 "$(DESTDIR)$(mandir)/man3"; \
	fi

uninstall-local:
	-cd "$(DESTDIR)$(docdir)" && rm -rf $(installed_docs)
	-rm -f "$(DESTDIR)$(mandir)"/man3/ceov_*.3
