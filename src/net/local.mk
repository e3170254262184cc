# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# net: messages and bytes to and from processes of other nodes
libceoverlap_core_la_SOURCES += \
	%D%/transport.h \
	%D%/far_wire.c %D%/far_wire.h

# who is where
libceoverlap_core_la_SOURCES += \
	%D%/gathered.c %D%/gathered.h \
	%D%/record.c %D%/record.h \
	%D%/book.c %D%/book.h \
	%D%/book_private.h \
	%D%/book_make.c \
	%D%/book_open.c %D%/book_open.h

# the first exchange
libceoverlap_core_la_SOURCES += \
	%D%/exchange.c %D%/exchange.h \
	%D%/means.h \
	%D%/exchange_numbers.c %D%/exchange_numbers.h \
	%D%/exchange_callback.c \
	%D%/store_wire.c %D%/store_wire.h \
	%D%/store_socket.c %D%/store_socket.h \
	%D%/store_server.c %D%/store_server.h %D%/store_server_private.h \
	%D%/store_answer.c \
	%D%/store_links.c %D%/links.h \
	%D%/node_meet.c %D%/node_meet.h \
	%D%/store_path.c %D%/store_path.h \
	%D%/exchange_store.c
if HAVE_PMIX
libceoverlap_core_la_SOURCES += \
	%D%/exchange_pmix.c
else
libceoverlap_core_la_SOURCES += \
	%D%/exchange_pmix_absent.c
endif

# the transport over UCX
libceoverlap_core_la_SOURCES += \
	%D%/ucx.h
if HAVE_UCX
libceoverlap_core_la_SOURCES += \
	%D%/ucx_table.c %D%/ucx_table.h \
	%D%/ucx_worker.c %D%/ucx_worker.h \
	%D%/ucx_task.c %D%/ucx_task.h \
	%D%/ucx_peer.c %D%/ucx_peer.h \
	%D%/ucx_send.c %D%/ucx_send.h \
	%D%/ucx_offer.c %D%/ucx_offer.h \
	%D%/ucx_devices.c %D%/ucx_devices.h \
	%D%/ucx.c
else
libceoverlap_core_la_SOURCES += \
	%D%/ucx_absent.c
endif

# rails: pieces and marks over a transport, and their thread
libceoverlap_core_la_SOURCES += \
	%D%/far_stream.c %D%/far_stream.h \
	%D%/bell.c %D%/bell.h \
	%D%/far_lane.c %D%/far_lane.h \
	%D%/far_memory.c %D%/far_memory.h \
	%D%/rail_config.h \
	%D%/far_copier.h \
	%D%/far_slots.c %D%/far_slots.h \
	%D%/far_peer.c %D%/far_peer.h \
	%D%/far_notes.c %D%/far_notes.h \
	%D%/far_watch.c %D%/far_watch.h \
	%D%/far_send.c %D%/far_send.h \
	%D%/far_receive.c %D%/far_receive.h \
	%D%/rail.c %D%/rail.h \
	%D%/rail_private.h \
	%D%/rail_direct.c \
	%D%/rail_events.c \
	%D%/rail_thread.c \
	%D%/rail_turn.c \
	%D%/rail_say.c \
	%D%/network.c %D%/network.h \
	%D%/network_private.h \
	%D%/network_rail.c \
	%D%/carrier_rails.c %D%/carrier_rails.h \
	%D%/network_direct.c \
	%D%/in_place.c %D%/in_place.h \
	%D%/clock_offset.c %D%/clock_offset.h \
	%D%/network_clock.c %D%/network_clock.h \
	%D%/network_regions.c
