/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_UCX_TABLE_H
#define CEI_UCX_TABLE_H

/*
 * UCX's functions, looked up at run time. Only src/net/ucx_*.c and ucx.c include this header,
 * because it needs UCX's. Types come from UCX's headers; versions with the same major number
 * are compatible with programs built for older ones.
 */

#include <ucp/api/ucp.h>

#include "base/report.h"

#define CEI_UCX_VERSION_MAJOR     1u
#define CEI_UCX_VERSION_MINOR_MIN 13u   /* older versions were not tried */

struct cei_ucx_calls {
	__typeof__(&ucp_get_version)                 version;
	__typeof__(&ucp_get_version_string)          version_string;
	__typeof__(&ucs_status_string)               status_string;

	__typeof__(&ucp_config_read)                 config_read;
	__typeof__(&ucp_config_modify)               config_modify;
	__typeof__(&ucp_config_release)              config_release;
	__typeof__(&ucp_init_version)                init_version;
	__typeof__(&ucp_cleanup)                     cleanup;
	__typeof__(&ucp_context_print_info)          context_print;
	__typeof__(&ucp_context_query)               context_query;

	__typeof__(&ucp_worker_create)               worker_create;
	__typeof__(&ucp_worker_destroy)              worker_destroy;
	__typeof__(&ucp_worker_get_address)          worker_address;
	__typeof__(&ucp_worker_release_address)      worker_release_address;
	__typeof__(&ucp_worker_get_efd)              worker_fd;
	__typeof__(&ucp_worker_arm)                  worker_arm;
	__typeof__(&ucp_worker_progress)             worker_progress;
	__typeof__(&ucp_worker_flush_nbx)            worker_flush;
	__typeof__(&ucp_worker_set_am_recv_handler)  worker_set_handler;

	__typeof__(&ucp_mem_map)                     memory_map;
	__typeof__(&ucp_mem_unmap)                   memory_unmap;

	__typeof__(&ucp_ep_create)                   endpoint_create;
	__typeof__(&ucp_ep_close_nbx)                endpoint_close;
	__typeof__(&ucp_ep_evaluate_perf)            evaluate;          /* NULL: not there */
	__typeof__(&ucp_am_send_nbx)                 send;
	__typeof__(&ucp_am_recv_data_nbx)            receive;
	__typeof__(&ucp_am_data_release)             release;

	__typeof__(&ucp_request_check_status)        request_status;
	__typeof__(&ucp_request_free)                request_free;
};

/* Loads libucp, which stays loaded, and looks the functions up. Signal handlers are after the
 * call as they were before, although UCX installs its own while it is loaded. CEOV_NONE,
 * not raised: there is no libucp, or it is too old; *ret_why says so in words. Any thread. */
int cei_ucx_load(struct cei_report *report, struct cei_ucx_calls *ret_calls,
		 const char **ret_why);

#endif /* CEI_UCX_TABLE_H */
