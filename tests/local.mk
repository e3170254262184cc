# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# --- tests ------------------------------------------------------------------------------

# One program a file: %D%/unit/test_ring is built from %D%/unit/test_ring.c, with
# LDADD. A suite of the first list runs everywhere; one of the second needs GPUs, is
# built by "make check" and run by "make check-gpu".
threaded_suites = \
	%D%/unit/test_gemm_ar \
	%D%/unit/test_gemm_ar_turns \
	%D%/unit/test_a2a \
	%D%/unit/test_orders \
	%D%/unit/test_alive \
	%D%/unit/test_alive_kills \
	%D%/unit/test_alive_watch \
	%D%/unit/test_mapping \
	%D%/unit/test_share_host \
	%D%/unit/test_datagram \
	%D%/unit/test_node_roster \
	%D%/unit/test_carrier_unix \
	%D%/unit/test_carrier_unix_ends \
	%D%/unit/test_peers \
	%D%/unit/test_peers_far \
	%D%/unit/test_report \
	%D%/unit/test_ring \
	%D%/unit/test_ports \
	%D%/unit/test_flows \
	%D%/unit/test_tally \
	%D%/unit/test_scheduler \
	%D%/unit/test_settings \
	%D%/unit/test_topology \
	%D%/unit/test_link \
	%D%/unit/test_driver \
	%D%/unit/test_signal \
	%D%/unit/test_signal_abort \
	%D%/unit/test_release \
	%D%/unit/test_query \
	%D%/unit/test_tombstones \
	%D%/unit/test_write \
	%D%/unit/test_ids \
	%D%/unit/test_table \
	%D%/unit/test_lane_set \
	%D%/unit/test_program \
	%D%/unit/test_program_wire \
	%D%/unit/test_plan \
	%D%/unit/test_plan_commit \
	%D%/unit/test_plan_import \
	%D%/unit/test_plan_order \
	%D%/unit/test_fork \
	%D%/unit/test_host \
	%D%/unit/test_tickets \
	%D%/unit/test_service_ring \
	%D%/unit/test_service_wakes \
	%D%/unit/test_launch \
	%D%/unit/test_hand_over \
	%D%/unit/test_poison \
	%D%/unit/test_turns \
	%D%/unit/test_parking \
	%D%/unit/test_expiry \
	%D%/unit/test_abort \
	%D%/unit/test_launch_fails \
	%D%/unit/test_close \
	%D%/unit/test_follow \
	%D%/unit/test_late_ends \
	%D%/unit/test_movers \
	%D%/unit/test_many_lanes \
	%D%/unit/test_nodes \
	%D%/unit/test_blocks \
	%D%/unit/test_broadcast \
	%D%/unit/test_levels \
	%D%/unit/test_nodes_faults \
	%D%/unit/test_nodes_floating \
	%D%/unit/test_nodes_in_place \
	%D%/unit/test_nodes_ops \
	%D%/unit/test_nodes_refuse \
	%D%/unit/test_waits \
	%D%/unit/test_gates \
	%D%/unit/test_groups \
	%D%/unit/test_fence \
	%D%/unit/test_queue \
	%D%/unit/test_lower \
	%D%/unit/test_training \
	%D%/unit/test_tell \
	%D%/unit/test_trace \
	%D%/unit/test_staging \
	%D%/unit/test_staging_fails \
	%D%/unit/test_floating \
	%D%/unit/test_counted \
	%D%/unit/test_collective \
	%D%/unit/test_execute_host \
	%D%/unit/test_experts \
	%D%/unit/test_embedding \
	%D%/unit/test_embedding_backward \
	%D%/unit/test_experts_fails \
	%D%/unit/test_experts_groups \
	%D%/unit/test_execute_fails \
	%D%/unit/test_execute_sums \
	%D%/unit/test_workspace \
	%D%/unit/test_ops \
	%D%/unit/test_channel \
	%D%/unit/test_channel_fails \
	%D%/unit/test_channel_growth \
	%D%/unit/test_channel_messages \
	%D%/unit/test_channel_refusals \
	%D%/unit/test_op_runs \
	%D%/unit/test_ops_agree \
	%D%/unit/test_meet \
	%D%/unit/test_chosen \
	%D%/unit/test_cuts \
	%D%/unit/test_cut_columns \
	%D%/unit/test_gemm_marks \
	%D%/unit/test_door \
	%D%/unit/test_operands \
	%D%/unit/test_kept \
	%D%/unit/test_strides \
	%D%/unit/test_move \
	%D%/unit/test_direct \
	%D%/unit/test_host_allreduce \
	%D%/unit/test_copier \
	%D%/unit/test_far_lane \
	%D%/unit/test_network_clock \
	%D%/unit/test_network_rail \
	%D%/unit/test_rail_threads \
	%D%/unit/test_tune \
	%D%/conformance/test_backend_host \
	%D%/conformance/test_backend_proxy \
	%D%/conformance/test_transport_loop \
	%D%/system/test_bootstrap \
	%D%/system/test_bootstrap_loss \
	%D%/system/test_bootstrap_path \
	%D%/system/test_bootstrap_export \
	%D%/system/test_evil_peer \
	%D%/system/test_finds \
	%D%/system/test_one_transfer \
	%D%/system/test_processes \
	%D%/system/test_ops_shapes \
	%D%/system/test_channel_programs

if HAVE_DAEMON
threaded_suites += \
	%D%/unit/test_guest \
	%D%/system/test_daemon \
	%D%/system/test_daemon_fence \
	%D%/system/test_hostile_client \
	%D%/system/test_reopen \
	%D%/system/daemon_torture
endif

# Functions of their arguments: nothing in them runs beside anything. Processes of one thread
# each that meet. And what runs beside libraries that a thread sanitizer does not see into, such
# as PMIx's.
pure_suites = \
	%D%/system/test_meeting \
	%D%/system/test_meeting_strays \
	%D%/system/test_meeting_pmix \
	%D%/unit/test_sized \
	%D%/unit/test_file \
	%D%/unit/test_area \
	%D%/unit/test_cursor \
	%D%/unit/test_message_bytes \
	%D%/unit/test_messages \
	%D%/unit/test_record \
	%D%/unit/test_book \
	%D%/unit/test_exchange \
	%D%/unit/test_store_wire \
	%D%/unit/test_message_sense \
	%D%/unit/test_service_offer \
	%D%/unit/test_route \
	%D%/unit/test_route_fixtures \
	%D%/unit/test_nics \
	%D%/unit/test_split \
	%D%/sim/test_sim_switch \
	%D%/unit/test_shares \
	%D%/unit/test_clients \
	%D%/sim/test_sim_flows \
	%D%/sim/test_sim_machines \
	%D%/sim/test_sim_program \
	%D%/sim/test_sim_short \
	%D%/unit/test_cost_fit \
	%D%/unit/test_machine_cache \
	%D%/unit/test_measure \
	%D%/unit/test_machine \
	%D%/unit/test_machine_xml \
	%D%/unit/test_machine_nodes \
	%D%/unit/test_nvml \
	%D%/unit/test_pieces \
	%D%/unit/test_tiles \
	%D%/unit/test_tiles_limits \
	%D%/unit/test_tiles_order \
	%D%/unit/test_tiles_parts \
	%D%/unit/test_dtype \
	%D%/unit/test_selector \
	%D%/unit/test_candidates \
	%D%/unit/test_direct_choice \
	%D%/unit/test_sm_lane \
	%D%/unit/test_sum_model \
	%D%/unit/test_kinds \
	%D%/unit/test_cost_sim \
	%D%/unit/test_graph_cache \
	%D%/unit/test_registry \
	%D%/unit/test_pinned \
	%D%/unit/test_nulls \
	%D%/unit/test_clock \
	%D%/unit/test_condition \
	%D%/unit/test_urgency \
	%D%/unit/test_clock_offset \
	%D%/unit/test_cells \
	%D%/unit/test_spread \
	%D%/unit/test_group_machine \
	%D%/unit/test_group_life \
	%D%/unit/test_group_counters \
	%D%/unit/test_group_sim \
	%D%/unit/test_far_stream \
	%D%/unit/test_rail_evil \
	%D%/unit/test_rail \
	%D%/unit/test_rail_faults \
	%D%/unit/test_carrier_rails \
	%D%/unit/test_rail_slots \
	%D%/unit/test_rail_staged \
	%D%/unit/test_rail_direct
if HAVE_CUDA
pure_suites += %D%/unit/test_share_cuda %D%/unit/test_stream_order %D%/unit/test_graphs
endif

# One thread uses a transport; UCX itself does not run under a thread sanitizer.
pure_suites += \
	%D%/conformance/test_transport_ucx_tcp \
	%D%/conformance/test_transport_ucx_shm \
	%D%/conformance/test_transport_ucx_reset \
	%D%/conformance/test_transport_proxy \
	%D%/conformance/test_transport_proxy_tcp \
	%D%/conformance/test_transport_proxy_shm
if HAVE_DAEMON
pure_suites += %D%/unit/test_intake
%C%_unit_test_intake_LDADD = libtesting.la libceoverlap_daemon.la libceoverlap_core.la \
	$(CHECK_LIBS)
%C%_unit_test_guest_LDADD = $(%C%_unit_test_intake_LDADD)
endif
if HAVE_UCX
pure_suites += %D%/unit/test_ucx
endif
if HAVE_DAEMON
pure_suites += %D%/unit/test_daemon_settings \
	%D%/unit/test_daemon_account \
	%D%/unit/test_daemon_listener \
	%D%/system/test_daemon_files \
	%D%/system/test_daemon_words \
	%D%/unit/test_daemon_usage \
	%D%/unit/test_daemon_watchdog \
	%D%/system/test_daemon_ops \
	%D%/system/test_daemon_show \
	%D%/system/test_daemon_systemd
endif
# Threads run in these four, but a thread sanitizer does not see the order that UCX gives, and
# cannot be loaded beside its hooks of memory calls.
pure_suites += \
	%D%/conformance/test_rail_ucx_tcp \
	%D%/conformance/test_rail_ucx_shm \
	%D%/conformance/test_net_proxy \
	%D%/system/test_nodes_processes \
	%D%/system/test_nodes_losses \
	%D%/system/test_nodes_large \
	%D%/system/test_nodes_namespaces
suites = $(threaded_suites) $(pure_suites)

gpu_suites =
if HAVE_CUDA
gpu_suites += \
	%D%/conformance/test_backend_cuda \
	%D%/gpu/test_gpu_verbs \
	%D%/gpu/test_gpu_transfer \
	%D%/gpu/test_gpu_counted \
	%D%/gpu/test_gpu_queue \
	%D%/gpu/test_gpu_nodes \
	%D%/gpu/test_gpu_node_ops \
	%D%/gpu/test_gpu_reduce \
	%D%/gpu/test_gpu_move \
	%D%/gpu/test_gpu_direct \
	%D%/gpu/test_gpu_mixed \
	%D%/gpu/test_gpu_direct_steps \
	%D%/gpu/test_gpu_begin \
	%D%/gpu/test_gpu_blas \
	%D%/gpu/test_gpu_gemm \
	%D%/gpu/test_gpu_experts \
	%D%/gpu/test_gpu_embedding \
	%D%/gpu/test_gpu_ops \
	%D%/gpu/test_gpu_few_sms \
	%D%/gpu/test_gpu_tune \
	%D%/gpu/test_gpu_routes \
	%D%/gpu/test_gpu_op_graphs \
	%D%/gpu/test_gpu_marks \
	%D%/gpu/test_gpu_replays \
	%D%/gpu/test_gpu_channel \
	%D%/gpu/test_gpu_channel_messages \
	%D%/gpu/test_gpu_channel_fails \
	%D%/gpu/test_gpu_pool \
	%D%/gpu/test_gpu_processes \
	%D%/gpu/test_gpu_litmus
if HAVE_DAEMON
gpu_suites += %D%/gpu/test_gpu_daemon
endif
endif

# What the product as a whole must keep: headers, names, layers, limits, files.
product_tests = \
	%D%/product/check_header.sh \
	%D%/product/check_symbols.sh \
	%D%/product/check_abi.sh \
	%D%/product/check_layers.sh \
	%D%/product/check_once.sh \
	%D%/product/check_graph.sh \
	%D%/product/check_fences.sh \
	%D%/product/check_limits.sh \
	%D%/product/check_dist.sh \
	%D%/product/check_reuse.sh \
	%D%/product/check_types.sh \
	%D%/product/check_install.sh \
	%D%/product/check_readme.sh \
	%D%/product/check_blocks.sh \
	%D%/product/check_reference.sh \
	%D%/product/check_drawing.sh \
	%D%/product/check_runner.sh \
	%D%/product/check_steps.sh \
	%D%/product/check_ll.sh \
	%D%/product/check_channel.sh \
	%D%/product/check_pairs.sh \
	model/check.sh \
	%D%/system/test_bench.sh \
	%D%/system/test_bench_daemon.sh \
	%D%/system/test_daemon_socket.sh \
	%D%/system/test_eight.sh \
	%D%/system/test_bench_ends.sh \
	%D%/system/test_bench_nodes.sh \
	%D%/system/test_bench_share.sh \
	%D%/system/test_sweep.sh \
	%D%/system/test_measure.sh \
	%D%/system/test_info.sh \
	%D%/system/test_run.sh \
	%D%/system/test_nvtx.sh \
	%D%/system/test_trace.sh \
	%D%/system/test_units.sh \
	%D%/system/test_launchers.sh \
	%D%/system/test_ucx_versions.sh \
	%D%/system/test_python.sh \
	%D%/system/test_sdist.sh \
	%D%/system/test_torch.sh \
	%D%/system/test_torch_layers.sh \
	%D%/system/test_torch_backend.sh \
	%D%/system/test_torch_programs.sh \
	%D%/system/test_torch_nodes.sh

if HAVE_CHECK
check_PROGRAMS = $(suites) $(gpu_suites) %D%/system/nodes_torture %D%/system/nodes_matrix \
	%D%/system/nodes_figures %D%/unit/group_sim \
	%D%/system/run_party %D%/system/run_other_party
check_LTLIBRARIES = libtesting.la
else
check-local:
	@echo "Check was not found by configure: install it (Debian: check), configure anew" >&2
	@exit 1
endif
LDADD = libtesting.la libceoverlap_core.la $(CHECK_LIBS)

# What times say, on a machine that only pretends: parts of the bench.
%C%_unit_test_measure_SOURCES = %D%/unit/test_measure.c tools/bench/measure/measure.h \
	tools/bench/measure/pairs.c tools/bench/measure/sets.c

# The carriers alone: the tests' doubles of the peers' events come before those of the library.
carrier_ldflags = -Wl,-z,muldefs
carrier_fixture = %D%/unit/carrier_fixture.c %D%/unit/carrier_fixture.h
%C%_unit_test_carrier_unix_SOURCES = %D%/unit/test_carrier_unix.c $(carrier_fixture)
%C%_unit_test_carrier_unix_ends_SOURCES = %D%/unit/test_carrier_unix_ends.c $(carrier_fixture)
%C%_unit_test_carrier_unix_LDFLAGS = $(carrier_ldflags)
%C%_unit_test_carrier_unix_ends_LDFLAGS = $(carrier_ldflags)
%C%_unit_test_carrier_rails_LDFLAGS = $(carrier_ldflags)

# The peers over real sockets and a post between nodes.
peers_fixture = %D%/unit/peers_fixture.c %D%/unit/peers_fixture.h %D%/unit/post.c %D%/unit/post.h
%C%_unit_test_peers_SOURCES = %D%/unit/test_peers.c $(peers_fixture)
%C%_unit_test_peers_far_SOURCES = %D%/unit/test_peers_far.c $(peers_fixture)

%C%_unit_test_cells_CPPFLAGS = $(AM_CPPFLAGS) $(JSON_C_CFLAGS)
%C%_unit_group_sim_SOURCES = %D%/unit/group_sim_main.c

%C%_unit_test_cells_LDADD = $(LDADD) $(JSON_C_LIBS)
%C%_unit_test_cells_SOURCES = %D%/unit/test_cells.c tools/common/cells.c tools/common/cells.h

%C%_system_test_evil_peer_SOURCES = %D%/system/test_evil_peer.c \
	%D%/system/evil_wire.c %D%/system/evil_wire.h
%C%_system_test_meeting_SOURCES = %D%/system/test_meeting.c \
	%D%/system/meeting_fixture.c %D%/system/meeting_fixture.h
%C%_system_test_meeting_strays_SOURCES = %D%/system/test_meeting_strays.c \
	%D%/system/meeting_fixture.c %D%/system/meeting_fixture.h
if HAVE_PMIX
%C%_system_test_meeting_pmix_CPPFLAGS = $(AM_CPPFLAGS) -DCEI_TEST_PMIX
else
%C%_system_test_meeting_pmix_CPPFLAGS = $(AM_CPPFLAGS)
endif

# UCX has to find this program's send() and sendmsg() before the C library's.
%C%_conformance_test_transport_ucx_reset_LDFLAGS = -export-dynamic

%C%_unit_test_training_SOURCES = %D%/unit/test_training.c \
	%D%/unit/training_rig.c %D%/unit/training_rig.h

%C%_system_run_other_party_SOURCES = %D%/system/run_party.c %D%/system/other_version.c

%C%_system_test_nodes_namespaces_SOURCES = %D%/system/test_nodes_namespaces.c \
	%D%/system/node_attempts.c %D%/system/node_attempts.h \
	%D%/system/node_cell.c %D%/system/node_cell.h \
	%D%/system/node_life.c %D%/system/node_life.h \
	%D%/system/node_loss.c %D%/system/node_process.h \
	%D%/system/namespaces.c %D%/system/namespaces.h
%C%_system_nodes_matrix_SOURCES = %D%/system/nodes_matrix.c \
	%D%/system/node_attempts.c %D%/system/node_attempts.h \
	%D%/system/node_cell.c %D%/system/node_cell.h \
	%D%/system/node_life.c %D%/system/node_life.h \
	%D%/system/node_loss.c %D%/system/node_process.h \
	%D%/system/namespaces.c %D%/system/namespaces.h
%C%_system_nodes_torture_SOURCES = %D%/system/nodes_torture.c \
	%D%/system/node_life.c %D%/system/node_life.h \
	%D%/system/node_loss.c %D%/system/node_process.h \
	%D%/system/namespaces.c %D%/system/namespaces.h

%C%_unit_test_daemon_settings_LDADD = libtesting.la libceoverlap_daemon.la \
	libceoverlap_core.la $(CHECK_LIBS)
%C%_system_daemon_torture_SOURCES = %D%/system/daemon_torture.c \
	%D%/system/torture_client.c %D%/system/torture_client.h \
	%D%/system/torture_memory.h
if HAVE_CUDA
%C%_system_daemon_torture_SOURCES += %D%/gpu/torture_memory_gpu.c
else
%C%_system_daemon_torture_SOURCES += %D%/system/torture_memory_host.c
endif

%C%_unit_test_daemon_account_LDADD = $(%C%_unit_test_daemon_settings_LDADD)
%C%_unit_test_daemon_listener_LDADD = $(%C%_unit_test_daemon_settings_LDADD)
%C%_system_test_daemon_files_LDADD = $(%C%_unit_test_daemon_settings_LDADD)
%C%_unit_test_daemon_usage_LDADD = $(%C%_unit_test_daemon_settings_LDADD)
%C%_unit_test_daemon_watchdog_LDADD = $(%C%_unit_test_daemon_settings_LDADD)
%C%_system_test_daemon_ops_CPPFLAGS = $(AM_CPPFLAGS) $(JSON_C_CFLAGS)
%C%_system_test_daemon_ops_LDADD = $(LDADD) $(JSON_C_LIBS)

# What several suites share; each takes from it what it needs.
libtesting_la_SOURCES = \
	%D%/testing.c %D%/testing.h \
	%D%/made_message.c %D%/made_message.h \
	%D%/testing_ucx.c \
	%D%/unit/alive_rig.c %D%/unit/alive_rig.h \
	%D%/unit/loopback.c %D%/unit/loopback.h \
	%D%/unit/group_rig.c %D%/unit/group_rig.h \
	%D%/unit/group_sim.c %D%/unit/group_sim.h %D%/unit/group_sim_check.c \
	%D%/unit/group_sim_counters.c %D%/unit/group_sim_run.c \
	%D%/unit/stream_rig.c %D%/unit/stream_rig.h \
	%D%/unit/machine_fixture.c %D%/unit/machine_fixture.h \
	%D%/unit/route_rig.c %D%/unit/route_rig.h \
	%D%/unit/op_case.c %D%/unit/op_case_large.c %D%/unit/op_a2a.c %D%/unit/op_expect.h \
	%D%/unit/op_rig.c %D%/unit/op_rig.h \
	%D%/unit/channel_case.c %D%/unit/channel_case.h \
	%D%/unit/channel_item.c %D%/unit/channel_item.h \
	%D%/unit/channel_rig.c %D%/unit/channel_rig.h \
	%D%/unit/op_record.c %D%/unit/op_record.h \
	%D%/unit/move_rig.c %D%/unit/move_rig.h \
	%D%/unit/embedding_data.c %D%/unit/embedding_data.h \
	%D%/unit/fake_event.c %D%/unit/fake_event.h \
	%D%/unit/feeder.c %D%/unit/feeder.h \
	%D%/unit/loop_net.c %D%/unit/loop_private.h \
	%D%/unit/loop_transport.c %D%/unit/loop_transport.h \
	%D%/unit/rail_rig.c %D%/unit/rail_rig.h \
	%D%/unit/device_copier.c %D%/unit/device_copier.h \
	%D%/unit/rail_pair.c %D%/unit/rail_pair.h \
	%D%/unit/service_rig.c %D%/unit/service_rig.h \
	%D%/unit/nodes_rig.c %D%/unit/nodes_rig.h \
	%D%/unit/executor_fixture.c %D%/unit/executor_fixture.h \
	%D%/sim/sim.c %D%/sim/sim.h \
	%D%/sim/sim_client.c %D%/sim/sim_client.h \
	%D%/sim/sim_program.c %D%/sim/sim_program.h \
	%D%/conformance/backend_conformance.c %D%/conformance/backend_conformance.h \
	%D%/conformance/backend_rig.c %D%/conformance/backend_rig.h \
	%D%/conformance/backend_gates.c \
	%D%/conformance/backend_caps.c \
	%D%/conformance/backend_streams.c \
	%D%/conformance/proxy.c %D%/conformance/proxy.h \
	%D%/conformance/transport_proxy.c %D%/conformance/transport_proxy.h \
	%D%/conformance/transport_conformance.c %D%/conformance/transport_conformance.h \
	%D%/conformance/transport_cases.h \
	%D%/conformance/transport_rig.c %D%/conformance/transport_rig.h \
	%D%/conformance/transport_ends.c \
	%D%/conformance/transport_processes.c \
	%D%/conformance/ucx_aborts.c %D%/conformance/ucx_aborts.h \
	%D%/system/bootstrap_fixture.c %D%/system/bootstrap_fixture.h \
	tools/common/port.c tools/common/port.h \
	%D%/system/daemon_fixture.c %D%/system/daemon_fixture.h \
	%D%/system/daemon_rig.c %D%/system/daemon_rig.h \
	%D%/system/fake_daemon.c %D%/system/fake_daemon.h
if HAVE_CUDA
libtesting_la_LIBADD = libwork_kernels.la
libtesting_la_SOURCES += \
	%D%/gpu/gpu_rig.c %D%/gpu/gpu_rig.h \
	%D%/gpu/gpu_process.c %D%/gpu/gpu_process.h \
	%D%/gpu/gpu_rounds.c %D%/gpu/gpu_rounds.h \
	%D%/gpu/gpu_graph.c %D%/gpu/gpu_graph.h \
	%D%/gpu/gpu_green.c %D%/gpu/gpu_green.h \
	%D%/gpu/gpu_op_a2a.c %D%/gpu/gpu_op_check.h \
	%D%/gpu/gpu_op_rig.c %D%/gpu/gpu_op_rig.h \
	%D%/gpu/gpu_op_data.c \
	%D%/gpu/gpu_expert_data.c %D%/gpu/gpu_expert_data.h \
	%D%/gpu/gpu_move_data.c %D%/gpu/gpu_move_data.h \
	%D%/gpu/gpu_channel_rig.c %D%/gpu/gpu_channel_rig.h
endif

TESTS = $(product_tests) $(suites)
TEST_EXTENSIONS = .sh
LOG_COMPILER = $(BASH) $(srcdir)/%D%/run_test.sh
SH_LOG_COMPILER = $(BASH) $(srcdir)/%D%/run_test.sh
AM_TESTS_ENVIRONMENT = \
	export CC='$(CC)' NM='$(NM)' PKG_CONFIG='$(PKG_CONFIG)' \
		NVCC='$(NVCC)' NVCC_ARCH_FLAGS='$(NVCC_ARCH_FLAGS)' \
		CUDA_CFLAGS='$(CUDA_CFLAGS)';
EXTRA_DIST += $(product_tests) abi/libceoverlap.abi %D%/product/abi.py %D%/product/graph.py %D%/product/circles.txt %D%/product/sizes.sh \
	%D%/product/blocks.py %D%/product/blocks %D%/product/messages.py \
	%D%/product/options.py \
	%D%/product/gpu_on_host.h %D%/product/gpu_on_host.sh %D%/product/bulk_on_host.h \
	%D%/product/channel.cc %D%/product/channel_cases.h %D%/product/channel_late.h \
	%D%/product/steps.cc %D%/product/ll.cc %D%/product/ll_cases.h \
	%D%/product/pairs.cc \
	%D%/system/count_ranges.c %D%/system/check_report.py %D%/system/check_sweep.py %D%/system/check_trace.py \
	model/flag_protocol.pml \
	model/halves.pml model/sent.pml model/captured_runs.pml model/direct_runs.pml \
	model/far_marks.pml model/channel.pml model/channel_gpu.pml model/channel_rings.pml \
	model/order.pml model/weak_memory.pml model/service_ring.pml \
	%D%/unit/group_mutants.sh \
	%D%/run_test.sh %D%/check_long.sh %D%/check_ucx.sh %D%/run_gpu_tests.sh %D%/count_cases.sh \
	%D%/fuzz/run.sh %D%/fuzz/fuzz_service_ring.c %D%/fuzz/fuzz_messages.c \
	%D%/fuzz/fuzz_program_wire.c %D%/fuzz/no_memory.c \
	%D%/fuzz/make_corpus.c %D%/fuzz/ci.sh %D%/fuzz/corpus \
	%D%/gpu/check_sanitizer.sh %D%/stub/fake_cuda.c %D%/stub/fake_nvml.c

# The Python package's tests, and machines as hwloc XML: whole folders.
EXTRA_DIST += %D%/python %D%/fixtures \
	%D%/system/with_python.sh \
	%D%/gpu/check_torch.sh %D%/gpu/check_stress.sh %D%/gpu/with_torch.sh \
	%D%/gpu/stress_torch.py

# The suites without the product's tests.
check-suites: all
	$(MAKE) $(AM_MAKEFLAGS) check TESTS='$(suites)'

# For sanitizers: the suites, or those that a thread sanitizer can say something about, and the
# programs that they start. Nothing else is built for them.
if HAVE_DAEMON
suite_programs = ceoverlapd$(EXEEXT) ceoverlapctl$(EXEEXT)
endif

built-suites:
	$(MAKE) $(AM_MAKEFLAGS) $(suites) $(suite_programs)

threaded-suites:
	$(MAKE) $(AM_MAKEFLAGS) $(threaded_suites) $(suite_programs)

check-built:
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS check_PROGRAMS='$(suites)' TESTS='$(suites)'

check-threaded:
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS check_PROGRAMS='$(threaded_suites)' \
		TESTS='$(threaded_suites)'

# Suites are made after "all", not beside it: a make of each would build the same objects.
check-gpu: all
	@test -n '$(gpu_suites)' || \
		{ echo "built without the CUDA toolkit: there is no GPU suite" >&2; exit 1; }
	$(MAKE) $(AM_MAKEFLAGS) $(gpu_suites)
	@srcdir=$(srcdir) $(BASH) $(srcdir)/%D%/run_gpu_tests.sh $(gpu_suites)

# The Python packages for PyTorch and Triton; PYTHON names the Python that has them.
check-gpu-torch: all
	@$(BASH) $(srcdir)/%D%/gpu/check_torch.sh

# The loss of a process in a large group over several nodes.
check-nodes-loss: all
	CEOVERLAP_TEST_LOSS=1 $(MAKE) $(AM_MAKEFLAGS) check \
		TESTS='%D%/system/test_nodes_large'

# What uses UCX itself, with the UCX whose libraries are in the folder UCX_LIB; by default with the
# one that is installed.
ucx_suites = \
	%D%/unit/test_ucx \
	%D%/conformance/test_transport_ucx_tcp \
	%D%/conformance/test_transport_ucx_shm \
	%D%/conformance/test_rail_ucx_tcp \
	%D%/conformance/test_rail_ucx_shm \
	%D%/conformance/test_transport_ucx_reset \
	%D%/conformance/test_transport_proxy_tcp \
	%D%/conformance/test_transport_proxy_shm \
	%D%/conformance/test_net_proxy \
	%D%/system/test_nodes_losses \
	%D%/system/test_nodes_processes \
	%D%/system/test_nodes_large \
	%D%/system/test_nodes_namespaces
ucx_scripts = \
	%D%/system/test_info.sh \
	%D%/system/test_launchers.sh \
	%D%/system/test_bench_nodes.sh \
	%D%/system/test_trace.sh \
	%D%/system/test_ucx_versions.sh

check-ucx: all
	$(MAKE) $(AM_MAKEFLAGS) $(ucx_suites) %D%/system/run_party %D%/system/run_other_party
	@$(AM_TESTS_ENVIRONMENT) srcdir=$(srcdir) UCX_LIB='$(UCX_LIB)' \
		$(BASH) $(srcdir)/%D%/check_ucx.sh $(ucx_suites) \
		$(addprefix $(srcdir)/,$(ucx_scripts))

# Each fuzzer for FUZZ_SECONDS; 77: there is no clang to build them with.
FUZZ_SECONDS = 60
check-fuzz:
	@$(BASH) $(srcdir)/%D%/fuzz/run.sh $(FUZZ_SECONDS) || test $$? = 77

# For as long as CEOVERLAP_STRESS_SECONDS says.
check-gpu-stress: all
	@$(BASH) $(srcdir)/%D%/gpu/check_stress.sh

# Verbs and operators under compute-sanitizer, where there is one.
check-gpu-sanitizer: all
	$(MAKE) $(AM_MAKEFLAGS) $(gpu_suites)
	@for program in verbs begin reduce move experts embedding blas ops op_graphs; do \
		$(BASH) $(srcdir)/%D%/gpu/check_sanitizer.sh %D%/gpu/test_gpu_$$program || \
			exit 1; \
	done

# Faults between nodes again and again: 1,000 cycles in which a group opens, is struck under load and
# opens again, and each case of the matrix 100 times. An hour on two idle cores. Other numbers are
# CEOVERLAP_TEST_NODES_CYCLES, CEOVERLAP_TEST_NODES_ROUNDS, the cases that run beside each other
# (CEOVERLAP_TEST_NODES_BESIDE), and seconds after which no case begins
# (CEOVERLAP_TEST_NODES_SECONDS).
check-nodes-torture: all
	$(MAKE) $(AM_MAKEFLAGS) %D%/system/nodes_torture %D%/system/nodes_matrix
	@export CEOVERLAP_TEST_TIMEOUT=14400; \
		$(BASH) $(srcdir)/%D%/run_test.sh %D%/system/nodes_torture && \
		$(BASH) $(srcdir)/%D%/run_test.sh %D%/system/nodes_matrix

# A daemon and clients with 1 GiB each, of which 1,000 are killed, stopped or lose their daemon; and
# 100 daemons killed under ranks that go on. Other numbers: CEOVERLAP_TEST_DAEMON_CYCLES, _CLIENTS,
# _MIB, CEOVERLAP_TEST_REOPEN_ROUNDS; "make check" runs short forms of both.
check-daemon-torture: all
	$(MAKE) $(AM_MAKEFLAGS) %D%/system/daemon_torture %D%/system/test_reopen
	@export CEOVERLAP_TEST_TIMEOUT=14400 \
		CEOVERLAP_TEST_DAEMON_CYCLES=$${CEOVERLAP_TEST_DAEMON_CYCLES-1000} \
		CEOVERLAP_TEST_DAEMON_MIB=$${CEOVERLAP_TEST_DAEMON_MIB-1024} \
		CEOVERLAP_TEST_REOPEN_ROUNDS=$${CEOVERLAP_TEST_REOPEN_ROUNDS-100}; \
		$(BASH) $(srcdir)/%D%/run_test.sh %D%/system/test_reopen && \
		$(BASH) $(srcdir)/%D%/run_test.sh %D%/system/daemon_torture

# What "make check" has in a short form, for 30 to 60 minutes on two idle cores. LONG names some parts
# of tests/check_long.sh, which lists them.
check-long: all
	$(MAKE) $(AM_MAKEFLAGS) $(suites) %D%/system/nodes_torture
	@$(AM_TESTS_ENVIRONMENT) $(BASH) $(srcdir)/%D%/check_long.sh $(LONG)

# How long many processes take to open, and the memory a process needs for others. It judges nothing.
check-nodes-figures: all
	$(MAKE) $(AM_MAKEFLAGS) %D%/system/nodes_figures
	@CEOVERLAP_TEST_TIMEOUT=300 $(BASH) $(srcdir)/%D%/run_test.sh %D%/system/nodes_figures

.PHONY: check-long check-daemon-torture check-nodes-torture check-nodes-figures check-nodes-loss built-suites threaded-suites check-built check-suites check-threaded check-ucx \
	check-fuzz check-gpu check-gpu-torch check-gpu-stress check-gpu-sanitizer
