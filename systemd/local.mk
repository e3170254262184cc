# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# Units for systemd, the user that the daemon runs as, and its settings. systemd reads units below
# /usr and /usr/local; for another prefix they have to be linked.
EXTRA_DIST += %D%/ceoverlapd.service.in %D%/ceoverlapd.socket %D%/sysusers.d/ceoverlapd.conf
if HAVE_DAEMON
systemdunitdir = $(prefix)/lib/systemd/system
systemdunit_DATA = %D%/ceoverlapd.socket
nodist_systemdunit_DATA = %D%/ceoverlapd.service
sysusersdir = $(prefix)/lib/sysusers.d
sysusers_DATA = %D%/sysusers.d/ceoverlapd.conf
CLEANFILES += %D%/ceoverlapd.service

%D%/ceoverlapd.service: %D%/ceoverlapd.service.in Makefile
	$(AM_V_GEN)$(MKDIR_P) %D% && sed -e 's|@sbindir[@]|$(sbindir)|' \
		-e 's|@sysconfdir[@]|$(sysconfdir)|' $(srcdir)/%D%/ceoverlapd.service.in > $@.new && \
		mv $@.new $@

# An operator's settings stay. What is as it was installed goes.
own_settings = $(DESTDIR)$(sysconfdir)/ceoverlap/ceoverlapd.conf
install-data-hook:
	$(MKDIR_P) $(DESTDIR)$(sysconfdir)/ceoverlap
	test -e $(own_settings) || \
		$(INSTALL_DATA) $(srcdir)/examples/ceoverlapd.conf $(own_settings)

uninstall-hook:
	if cmp -s $(srcdir)/examples/ceoverlapd.conf $(own_settings); then rm $(own_settings); fi
endif
