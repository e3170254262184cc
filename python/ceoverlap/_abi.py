# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The C interface, word for word: constants, structs and prototypes of
``include/ceoverlap/{ceoverlap,collective,ops,embedding,channel,pool}.h``, and the way to the
library.

Nothing here decides anything; the names are C's. Handles are addresses (``c_void_p``).
``tests/python/test_abi.py`` compares this file with the headers.
"""

from __future__ import annotations

import ctypes
import operator
import os
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_float, c_int,
                    c_size_t, c_uint32, c_uint64, c_void_p, sizeof)
from typing import Any, Dict, List, Sequence, Tuple, Type, TypeVar

# --- constants ---------------------------------------------------------------------------

CEOV_PENDING = 1
CEOV_FULL = 2
CEOV_NONE = 3

CEOV_ERR_INVALID = -1
CEOV_ERR_STATE = -2
CEOV_ERR_NO_MEMORY = -3
CEOV_ERR_NO_ROUTE = -4
CEOV_ERR_SYSTEM = -5
CEOV_ERR_CUDA = -6
CEOV_ERR_UCX = -7
CEOV_ERR_PEER_LOST = -8
CEOV_ERR_ABORTED = -9
CEOV_ERR_TIMEOUT = -10
CEOV_ERR_VERSION = -11
CEOV_ERR_STALE = -12
CEOV_ERR_FORKED = -13
CEOV_ERR_UNCERTAIN = -14
CEOV_ERR_DAEMON_LOST = -15

CEOV_NOBODY = 0xFFFFFFFF
CEOV_FAILURE_TEXT_BYTES = 256
CEOV_NAME_BYTES = 64
CEOV_VALUE_LIMIT = 1 << 62

CEOV_PLACE_HOST = 0
CEOV_PLACE_GPU = 1

CEOV_SIGNAL_HOST_VISIBLE = 1

CEOV_ROUTES_DEFAULT = 0
CEOV_ROUTES_DIRECT = 1
CEOV_ROUTES_ALL = 2

CEOV_URGENCY_NORMAL = 0
CEOV_URGENCY_URGENT = 1
CEOV_URGENCY_BACKGROUND = 2

CEOV_BF16 = 1
CEOV_FP16 = 2
CEOV_FP32 = 3
CEOV_FP64 = 4
CEOV_INT8 = 5
CEOV_UINT8 = 6
CEOV_INT16 = 7
CEOV_UINT16 = 8
CEOV_INT32 = 9
CEOV_UINT32 = 10
CEOV_INT64 = 11
CEOV_UINT64 = 12
CEOV_BOOL = 13
CEOV_FP8_E4M3 = 14
CEOV_FP8_E5M2 = 15
CEOV_COMPLEX64 = 16
CEOV_COMPLEX128 = 17
CEOV_POOL_SUM = 1
CEOV_POOL_MEAN = 2

CEOV_OP_GEMMS_MAX = 4
CEOV_MOE_TOP_K_MAX = 64

CEOV_BOOTSTRAP_SHOWN = 0
CEOV_BOOTSTRAP_CALLBACK = 1
CEOV_BOOTSTRAP_PMIX = 2
CEOV_BOOTSTRAP_STORE = 3
CEOV_BOOTSTRAP_FOLDER = 4
CEOV_BOOTSTRAP_ALONE = 5

CEOV_NODES_DEFAULT = 0
CEOV_NODES_DIRECT = 1
CEOV_NODES_RING = 2

CEOV_MODE_CHOOSE = 0
CEOV_MODE_OVERLAP = 1
CEOV_MODE_SEQUENCE = 2
CEOV_MODE_DIRECT = 3
CEOV_MODE_TWO_SHOT = 4
CEOV_CUT_CHOOSE = 0
CEOV_CUT_EQUAL = 1
CEOV_CUT_WAVES = 2
CEOV_CUT_SHRINKING = 3
CEOV_CUT_GROWING = 4
CEOV_CUT_COLUMNS = 5

CEOV_ORDER_CHOOSE = 0
CEOV_ORDER_BANDS = 1
CEOV_ORDER_COLUMNS = 2
CEOV_ORDER_TURNS = 3

CEOV_ALL_GATHER = 1
CEOV_REDUCE_SCATTER = 2
CEOV_ALL_REDUCE = 3
CEOV_ALL_TO_ALL = 4
CEOV_BROADCAST = 5
CEOV_GATHER = 6
CEOV_SCATTER = 7
CEOV_REDUCE = 8
CEOV_BARRIER = 9
CEOV_SEND = 10
CEOV_RECEIVE = 11

CEOV_SUM = 0
CEOV_PRODUCT = 1
CEOV_MIN = 2
CEOV_MAX = 3
CEOV_MEAN = 4

CEOV_CHANNEL_CALLS_MAX = 1024

CEOV_POOL_CALL_BYTES = 4 << 20
CEOV_POOL_SEGMENTS_MAX = 256

# --- structs -----------------------------------------------------------------------------

c_enum = c_uint32                       # none of these enums has a negative constant
ceov_log = CFUNCTYPE(None, c_void_p, c_char_p)
ceov_all_gather_call = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, c_void_p, c_uint64)

# ctypes would cut off what is too large.
LIMITS = {c_uint32: (1 << 32) - 1, c_uint64: (1 << 64) - 1}


def checked(value: Any, limit: int, what: str) -> int:
    """Returns value as an int. Refuses what is no integer and what does not lie between 0 and
    limit; `what` names the value in the error."""
    number = operator.index(value)
    if not 0 <= number <= limit:
        from .errors import InvalidError

        raise InvalidError(f"{what}: {number} is not a number from 0 to {limit}")
    return number


class Struct(Structure):
    """A ctypes structure that refuses numbers which its fields cannot hold, where ctypes would
    cut them off."""

    _limits: Dict[str, int] = {}

    def __init_subclass__(cls) -> None:
        cls._limits = {name: LIMITS[kind] for name, kind, *_ in cls._fields_
                       if kind in LIMITS}

    def __setattr__(self, name: str, value: Any) -> None:
        limit = self._limits.get(name)
        if limit is not None:
            value = checked(value, limit, name)
        super().__setattr__(name, value)


class ceov_failure(Struct):
    _fields_ = [("error", c_int), ("native_code", c_int), ("rank", c_uint32),
                ("transfer", c_uint32), ("chunk", c_uint64), ("mark_value", c_uint64),
                ("seen_value", c_uint64), ("text", c_char * CEOV_FAILURE_TEXT_BYTES)]


class ceov_place(Struct):
    _fields_ = [("kind", c_enum), ("index", c_uint32)]


class ceov_member(Struct):
    _fields_ = [("rank", c_uint32), ("place", ceov_place)]


class ceov_network(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("bootstrap", c_uint32), ("process", c_uint32),
                ("n_processes", c_uint32), ("all_gather", ceov_all_gather_call),
                ("all_gather_arg", c_void_p), ("where", c_char_p), ("job", c_char_p),
                ("node", c_char_p), ("nics", c_char_p), ("secret", c_void_p),
                ("secret_bytes", c_size_t), ("peer_timeout_ns", c_uint64)]


class ceov_config(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("members", POINTER(ceov_member)),
                ("n_members", c_uint32), ("n_ranks", c_uint32), ("group", c_char_p),
                ("max_chunk_bytes", c_uint64), ("deadline_ns", c_uint64),
                ("progress_by_caller", c_int), ("log", ceov_log), ("log_arg", c_void_p),
                ("network", POINTER(ceov_network)), ("daemon", c_char_p)]


class ceov_context_info(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("n_ranks", c_uint32), ("n_members", c_uint32),
                ("n_processes", c_uint32), ("n_nodes", c_uint32), ("node", c_uint32),
                ("bootstrap", c_uint32), ("deadline_ns", c_uint64), ("has_daemon", c_int)]


class ceov_buffer_info(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("size_bytes", c_uint64), ("rank", c_uint32),
                ("place", ceov_place), ("is_found", c_int), ("is_floating", c_int),
                ("name", c_char * CEOV_NAME_BYTES)]


class ceov_signal_info(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("n_counters", c_uint32), ("rank", c_uint32),
                ("place", ceov_place), ("is_found", c_int), ("is_visible", c_int),
                ("error", c_int), ("blamed", c_uint32), ("name", c_char * CEOV_NAME_BYTES)]


class ceov_plan_info(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("rank", c_uint32), ("n_transfers", c_uint32),
                ("bytes", c_uint64), ("n_in_flight", c_uint32), ("is_committed", c_int),
                ("is_by_daemon", c_int)]


class ceov_channel_info(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("rank", c_uint32), ("n_ranks", c_uint32),
                ("place", ceov_place), ("ring_bytes", c_uint64), ("deadline_ns", c_uint64),
                ("is_connected", c_int), ("error", c_int), ("name", c_char * CEOV_NAME_BYTES)]


class ceov_mark(Struct):
    _fields_ = [("signal", c_void_p), ("index", c_uint32), ("value", c_uint64)]


class ceov_device_signal(Struct):
    _fields_ = [("counters", c_void_p), ("arrivals", c_void_p), ("words", c_void_p),
                ("abort_word", c_void_p), ("reserved", c_uint64 * 4)]


class ceov_spot(Struct):
    _fields_ = [("buffer", c_void_p), ("offset_bytes", c_uint64),
                ("pitch_bytes", c_uint64)]


class ceov_transfer(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("source_ready", ceov_mark),
                ("target_free", ceov_mark), ("source", ceov_spot), ("target", ceov_spot),
                ("row_bytes", c_uint64), ("n_rows", c_uint64), ("then", ceov_mark),
                ("n_rows_at", ceov_spot)]


class ceov_plan_options(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("max_chunk_bytes", c_uint64),
                ("mark_group_bytes", c_uint64), ("routes", c_uint32),
                ("urgency", c_uint32)]


class ceov_launch(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("base", c_uint64), ("deadline_ns", c_uint64),
                ("producer_stream", c_void_p), ("after_stream", c_void_p),
                ("floating", c_void_p)]


class ceov_ticket(Struct):
    _fields_ = [("number", c_uint64)]


class ceov_all_gather(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("shard_bytes", c_uint64),
                ("n_pieces", c_uint32), ("source", c_void_p),
                ("source_offset_bytes", c_uint64), ("targets", POINTER(c_void_p)),
                ("target_offset_bytes", c_uint64), ("ready", c_void_p),
                ("arrived", POINTER(c_void_p)), ("free", POINTER(c_void_p)),
                ("nodes", c_uint32)]


class ceov_block(Struct):
    _fields_ = [("bytes", c_uint64), ("source_offset_bytes", c_uint64),
                ("target_offset_bytes", c_uint64)]


class ceov_all_to_all(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("block_bytes", c_uint64),
                ("n_pieces", c_uint32), ("source", c_void_p),
                ("source_offset_bytes", c_uint64), ("targets", POINTER(c_void_p)),
                ("target_offset_bytes", c_uint64), ("ready", c_void_p),
                ("arrived", POINTER(c_void_p)), ("free", POINTER(c_void_p)),
                ("blocks", POINTER(ceov_block))]


class ceov_broadcast(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("bytes", c_uint64), ("n_pieces", c_uint32),
                ("root", c_uint32), ("source", c_void_p), ("source_offset_bytes", c_uint64),
                ("targets", POINTER(c_void_p)), ("target_offset_bytes", c_uint64),
                ("ready", c_void_p), ("arrived", POINTER(c_void_p)),
                ("free", POINTER(c_void_p))]


class ceov_workspace_config(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("rank", c_uint32), ("name", c_char_p),
                ("scratch_bytes", c_uint64), ("is_capturable", c_int),
                ("deadline_ns", c_uint64), ("shares_sms", c_int), ("n_sms", c_uint64),
                ("follows", c_void_p)]


class ceov_op_tuning(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("mode", c_enum), ("n_pieces", c_uint32),
                ("tile_rows", c_uint32), ("tile_columns", c_uint32),
                ("n_reduce_blocks", c_uint32), ("chunk_bytes", c_uint64), ("cut", c_enum),
                ("tile_order", c_enum), ("band_rows", c_uint32), ("n_gemm_blocks", c_uint32)]


class ceov_ag_gemm(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("dtype", c_enum), ("rows", POINTER(c_uint64)),
                ("k", c_uint64), ("n_gemms", c_uint32), ("n", c_uint64 * CEOV_OP_GEMMS_MAX),
                ("tuning", POINTER(ceov_op_tuning)), ("b_is_k_by_n", c_int)]


class ceov_ag_gemm_run(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("stream", c_void_p), ("a", c_void_p),
                ("b", c_void_p * CEOV_OP_GEMMS_MAX), ("c", c_void_p * CEOV_OP_GEMMS_MAX),
                ("gathered", c_void_p)]


class ceov_gemm_rs(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("dtype", c_enum), ("rows", POINTER(c_uint64)),
                ("k", c_uint64), ("n", c_uint64), ("tuning", POINTER(ceov_op_tuning)),
                ("b_is_k_by_n", c_int)]


class ceov_gemm_rs_run(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("stream", c_void_p), ("a", c_void_p),
                ("b", c_void_p), ("c", c_void_p)]


class ceov_gemm_ar(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("dtype", c_enum), ("m", c_uint64),
                ("k", c_uint64), ("n", c_uint64), ("tuning", POINTER(ceov_op_tuning)),
                ("b_is_k_by_n", c_int), ("by_rows", c_int)]


class ceov_gemm_ar_run(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("stream", c_void_p), ("a", c_void_p),
                ("b", c_void_p), ("c", c_void_p)]


class ceov_gemm_marks(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("dtype", c_enum), ("m", c_uint64),
                ("k", c_uint64), ("n", c_uint64), ("tuning", POINTER(ceov_op_tuning)),
                ("b_is_k_by_n", c_int)]


class ceov_gemm_marks_run(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("stream", c_void_p), ("a", c_void_p),
                ("b", c_void_p), ("c", c_void_p)]


class ceov_gemm_a2a(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("dtype", c_enum),
                ("rows_of", POINTER(c_uint64)), ("rows", POINTER(c_uint64)),
                ("columns", POINTER(c_uint64)), ("k", c_uint64), ("n", c_uint64),
                ("tuning", POINTER(ceov_op_tuning)), ("b_is_k_by_n", c_int)]


class ceov_gemm_a2a_run(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("stream", c_void_p), ("a", c_void_p),
                ("b", c_void_p), ("c", c_void_p)]


class ceov_a2a_gemm(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("dtype", c_enum),
                ("rows_of", POINTER(c_uint64)), ("rows", POINTER(c_uint64)),
                ("columns", POINTER(c_uint64)), ("k", c_uint64), ("n", c_uint64),
                ("tuning", POINTER(ceov_op_tuning)), ("b_is_k_by_n", c_int)]


class ceov_a2a_gemm_run(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("stream", c_void_p), ("a", c_void_p),
                ("b", c_void_p), ("c", c_void_p)]


class ceov_moe(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("dtype", c_enum), ("n_tokens", c_uint64),
                ("hidden", c_uint64), ("n_experts", c_uint32), ("top_k", c_uint32),
                ("capacity", c_uint64), ("n_received", c_uint64),
                ("tuning", POINTER(ceov_op_tuning)), ("total_capacity", c_uint64),
                ("n_groups", c_uint32)]


class ceov_moe_routing(Struct):
    _fields_ = [("slots", c_void_p), ("arrived", c_void_p)]


class ceov_moe_dispatch_run(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("stream", c_void_p), ("n_tokens", c_uint64),
                ("tokens", c_void_p), ("is_routed", c_int), ("experts", c_void_p),
                ("routing", ceov_moe_routing), ("received", c_void_p), ("ends", c_void_p),
                ("sent", c_void_p), ("group", c_uint32)]


class ceov_moe_combine_run(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("stream", c_void_p), ("n_tokens", c_uint64),
                ("rows", c_void_p), ("weights", c_void_p), ("routing", ceov_moe_routing),
                ("sums", c_void_p), ("group", c_uint32)]


class ceov_embedding(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("dtype", c_enum), ("pooling", c_enum),
                ("samples", POINTER(c_uint64)), ("n_local", POINTER(c_uint32)),
                ("dims", POINTER(c_uint64)), ("rows", POINTER(c_uint64)),
                ("tuning", POINTER(ceov_op_tuning))]


class ceov_embedding_bags(Struct):
    _fields_ = [("n_indices", c_uint64), ("indices", c_void_p), ("offsets", c_void_p),
                ("weights", c_void_p)]


class ceov_embedding_a2a_run(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("stream", c_void_p), ("tables", c_void_p),
                ("bags", ceov_embedding_bags), ("pooled", c_void_p)]


class ceov_embedding_backward_run(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("stream", c_void_p), ("grads", c_void_p),
                ("bags", ceov_embedding_bags), ("bag_grads", c_void_p),
                ("row_grads", c_void_p)]


class ceov_reduce(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("dtype", c_enum),
                ("counts", POINTER(c_uint64)), ("tuning", POINTER(ceov_op_tuning)),
                ("stride", c_uint64), ("scale", c_float), ("by_node", c_uint32)]


class ceov_reduce_run(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("stream", c_void_p), ("source", c_void_p),
                ("target", c_void_p)]


class ceov_move(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("bytes", POINTER(c_uint64)),
                ("tuning", POINTER(ceov_op_tuning))]


class ceov_move_run(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("stream", c_void_p), ("source", c_void_p),
                ("target", c_void_p)]


class ceov_channel_config(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("rank", c_uint32), ("name", c_char_p),
                ("ring_bytes", c_uint64), ("deadline_ns", c_uint64)]


class ceov_call(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("kind", c_enum), ("dtype", c_enum),
                ("reduction", c_enum), ("root", c_uint32), ("source", c_void_p),
                ("target", c_void_p), ("count", c_uint64), ("sends", POINTER(c_uint64)),
                ("receives", POINTER(c_uint64)), ("stream", c_void_p)]


class ceov_pool_config(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("max_bytes", c_uint64)]


class ceov_pool_info(Struct):
    _fields_ = [("struct_bytes", c_size_t), ("segment_bytes", c_uint64),
                ("used_bytes", c_uint64), ("n_segments", c_uint32), ("is_connected", c_int),
                ("n_engine_calls", c_uint64), ("n_kernel_calls", c_uint64)]


_AnyStruct = TypeVar("_AnyStruct", bound=Structure)


def new(kind: Type[_AnyStruct]) -> _AnyStruct:
    """Returns a zeroed struct of this class. Its field struct_bytes is set if it has one."""
    struct = kind()
    if kind._fields_[0][0] == "struct_bytes":
        struct.struct_bytes = sizeof(kind)
    return struct


# --- prototypes --------------------------------------------------------------------------

_handle = c_void_p
_ret_handle = POINTER(c_void_p)

PROTOTYPES: Dict[str, Tuple[Any, List[Any]]] = {
    "ceov_strerror": (c_char_p, [c_int]),
    "ceov_version": (c_char_p, []),
    "ceov_version_number": (c_uint32, []),
    "ceov_last_failure": (c_int, [_handle, POINTER(ceov_failure)]),
    "ceov_open": (c_int, [POINTER(ceov_config), _ret_handle]),
    "ceov_close": (None, [_handle]),
    "ceov_turn": (c_int, [_handle]),
    "ceov_barrier": (c_int, [_handle, c_uint64]),
    "ceov_reopen": (c_int, [_handle, c_uint64]),
    "ceov_n_ranks": (c_int, [_handle, POINTER(c_uint32)]),
    "ceov_members": (c_int, [_handle, POINTER(ceov_member), c_uint32, POINTER(c_uint32)]),
    "ceov_rank_node": (c_int, [_handle, c_uint32, POINTER(c_uint32)]),
    "ceov_context_query": (c_int, [_handle, POINTER(ceov_context_info)]),

    "ceov_buffer_register": (c_int, [_handle, c_uint32, c_void_p, c_uint64, _ret_handle]),
    "ceov_buffer_create": (c_int, [_handle, c_uint32, c_uint64, _ret_handle]),
    "ceov_buffer_float": (c_int, [_handle, c_uint32, c_uint64, _ret_handle]),
    "ceov_buffer_base": (c_void_p, [_handle, c_uint32]),
    "ceov_buffer_share": (c_int, [_handle, c_char_p]),
    "ceov_buffer_find": (c_int, [_handle, c_uint32, c_char_p, _ret_handle]),
    "ceov_buffer_query": (c_int, [_handle, POINTER(ceov_buffer_info)]),
    "ceov_buffer_release": (c_int, [_handle]),

    "ceov_signal_create": (c_int, [_handle, c_uint32, ceov_place, c_uint32, c_uint32,
                                   _ret_handle]),
    "ceov_signal_share": (c_int, [_handle, c_char_p]),
    "ceov_signal_find": (c_int, [_handle, c_uint32, c_char_p, _ret_handle]),
    "ceov_signal_query": (c_int, [_handle, POINTER(ceov_signal_info)]),
    "ceov_signal_for_device": (c_int, [_handle, c_uint32, POINTER(ceov_device_signal)]),
    "ceov_signal_raise": (c_int, [_handle, c_uint32, c_uint64]),
    "ceov_signal_arrive": (c_int, [_handle, c_uint32, c_uint32, c_uint64]),
    "ceov_signal_value": (c_int, [_handle, c_uint32, POINTER(c_uint64)]),
    "ceov_signal_wait": (c_int, [_handle, c_uint32, c_uint64, c_uint64]),
    "ceov_stream_raise": (c_int, [_handle, c_uint32, c_void_p, POINTER(ceov_mark), c_uint32,
                                  c_uint64]),
    "ceov_stream_wait": (c_int, [_handle, c_uint32, c_void_p, POINTER(ceov_mark), c_uint32,
                                 c_uint64]),
    "ceov_signal_renew": (c_int, [_handle]),
    "ceov_signal_release": (c_int, [_handle]),

    "ceov_plan_create": (c_int, [_handle, c_uint32, POINTER(ceov_plan_options),
                                 _ret_handle]),
    "ceov_plan_add": (c_int, [_handle, POINTER(ceov_transfer)]),
    "ceov_plan_expect": (c_int, [_handle, POINTER(ceov_mark)]),
    "ceov_plan_commit": (c_int, [_handle]),
    "ceov_plan_release": (None, [_handle]),
    "ceov_plan_idle": (c_int, [_handle]),
    "ceov_plan_query": (c_int, [_handle, POINTER(ceov_plan_info)]),
    "ceov_plan_explain": (c_int, [_handle, c_int]),
    "ceov_launch": (c_int, [_handle, POINTER(ceov_launch), POINTER(ceov_ticket)]),
    "ceov_plan_queue": (c_int, [_handle, c_void_p, c_uint64]),
    "ceov_wait": (c_int, [_handle, ceov_ticket, c_uint64]),
    "ceov_abort": (c_int, [_handle, ceov_ticket]),

    "ceov_plan_add_all_gather": (c_int, [_handle, POINTER(ceov_all_gather)]),
    "ceov_plan_add_all_to_all": (c_int, [_handle, POINTER(ceov_all_to_all)]),
    "ceov_plan_add_broadcast": (c_int, [_handle, POINTER(ceov_broadcast)]),

    "ceov_workspace_create": (c_int, [_handle, POINTER(ceov_workspace_config),
                                      _ret_handle]),
    "ceov_workspace_connect": (c_int, [_handle, c_uint64]),
    "ceov_workspace_status": (c_int, [_handle]),
    "ceov_workspace_idle": (c_int, [_handle]),
    "ceov_workspace_abort": (c_int, [_handle]),
    "ceov_workspace_release": (c_int, [_handle]),
    "ceov_op_explain": (c_int, [_handle, c_int]),
    "ceov_op_chosen": (c_int, [_handle, POINTER(ceov_op_tuning)]),
    "ceov_op_tune": (c_int, [_handle, c_void_p]),
    "ceov_op_release": (None, [_handle]),
    "ceov_ag_gemm_scratch_bytes": (c_uint64, [POINTER(ceov_ag_gemm), c_uint32]),
    "ceov_ag_gemm_create": (c_int, [_handle, POINTER(ceov_ag_gemm), _ret_handle]),
    "ceov_ag_gemm_run": (c_int, [_handle, POINTER(ceov_ag_gemm_run)]),
    "ceov_gemm_rs_scratch_bytes": (c_uint64, [POINTER(ceov_gemm_rs), c_uint32]),
    "ceov_gemm_rs_create": (c_int, [_handle, POINTER(ceov_gemm_rs), _ret_handle]),
    "ceov_gemm_rs_run": (c_int, [_handle, POINTER(ceov_gemm_rs_run)]),
    "ceov_moe_dispatch_scratch_bytes": (c_uint64, [POINTER(ceov_moe), c_uint32]),
    "ceov_moe_combine_scratch_bytes": (c_uint64, [POINTER(ceov_moe), c_uint32]),
    "ceov_moe_dispatch_create": (c_int, [_handle, POINTER(ceov_moe), _ret_handle]),
    "ceov_moe_combine_create": (c_int, [_handle, POINTER(ceov_moe), _ret_handle]),
    "ceov_moe_dispatch_run": (c_int, [_handle, POINTER(ceov_moe_dispatch_run)]),
    "ceov_moe_combine_run": (c_int, [_handle, POINTER(ceov_moe_combine_run)]),
    "ceov_embedding_a2a_scratch_bytes": (c_uint64, [POINTER(ceov_embedding), c_uint32]),
    "ceov_embedding_a2a_create": (c_int, [_handle, POINTER(ceov_embedding), _ret_handle]),
    "ceov_embedding_a2a_run": (c_int, [_handle, POINTER(ceov_embedding_a2a_run)]),
    "ceov_embedding_backward_scratch_bytes": (c_uint64, [POINTER(ceov_embedding), c_uint32]),
    "ceov_embedding_backward_create": (c_int, [_handle, POINTER(ceov_embedding), _ret_handle]),
    "ceov_embedding_backward_run": (c_int, [_handle, POINTER(ceov_embedding_backward_run)]),
    "ceov_gemm_ar_scratch_bytes": (c_uint64, [POINTER(ceov_gemm_ar), c_uint32]),
    "ceov_gemm_ar_create": (c_int, [_handle, POINTER(ceov_gemm_ar), _ret_handle]),
    "ceov_gemm_ar_run": (c_int, [_handle, POINTER(ceov_gemm_ar_run)]),
    "ceov_gemm_marks_scratch_bytes": (c_uint64, [POINTER(ceov_gemm_marks), c_uint32]),
    "ceov_gemm_marks_create": (c_int, [_handle, POINTER(ceov_gemm_marks), _ret_handle]),
    "ceov_gemm_marks_groups": (c_uint32, [_handle]),
    "ceov_gemm_marks_rows": (c_int, [_handle, c_uint32, POINTER(c_uint64),
                                     POINTER(c_uint64)]),
    "ceov_gemm_marks_run": (c_int, [_handle, POINTER(ceov_gemm_marks_run)]),
    "ceov_gemm_marks_wait": (c_int, [_handle, c_uint64, c_uint32, c_void_p]),
    "ceov_gemm_a2a_scratch_bytes": (c_uint64, [POINTER(ceov_gemm_a2a), c_uint32]),
    "ceov_gemm_a2a_create": (c_int, [_handle, POINTER(ceov_gemm_a2a), _ret_handle]),
    "ceov_gemm_a2a_run": (c_int, [_handle, POINTER(ceov_gemm_a2a_run)]),
    "ceov_a2a_gemm_scratch_bytes": (c_uint64, [POINTER(ceov_a2a_gemm), c_uint32]),
    "ceov_a2a_gemm_create": (c_int, [_handle, POINTER(ceov_a2a_gemm), _ret_handle]),
    "ceov_a2a_gemm_run": (c_int, [_handle, POINTER(ceov_a2a_gemm_run)]),
    "ceov_reduce_scatter_scratch_bytes": (c_uint64, [POINTER(ceov_reduce), c_uint32]),
    "ceov_all_reduce_scratch_bytes": (c_uint64, [POINTER(ceov_reduce), c_uint32]),
    "ceov_reduce_scatter_create": (c_int, [_handle, POINTER(ceov_reduce), _ret_handle]),
    "ceov_all_reduce_create": (c_int, [_handle, POINTER(ceov_reduce), _ret_handle]),
    "ceov_reduce_run": (c_int, [_handle, POINTER(ceov_reduce_run)]),
    "ceov_all_gather_scratch_bytes": (c_uint64, [POINTER(ceov_move), c_uint32]),
    "ceov_all_to_all_scratch_bytes": (c_uint64, [POINTER(ceov_move), c_uint32]),
    "ceov_all_gather_create": (c_int, [_handle, POINTER(ceov_move), _ret_handle]),
    "ceov_all_to_all_create": (c_int, [_handle, POINTER(ceov_move), _ret_handle]),
    "ceov_move_run": (c_int, [_handle, POINTER(ceov_move_run)]),

    "ceov_channel_create": (c_int, [_handle, POINTER(ceov_channel_config), _ret_handle]),
    "ceov_channel_connect": (c_int, [_handle, c_uint64]),
    "ceov_channel_run": (c_int, [_handle, POINTER(ceov_call), c_uint32]),
    "ceov_channel_explain": (c_int, [_handle, POINTER(ceov_call), c_int]),
    "ceov_channel_query": (c_int, [_handle, POINTER(ceov_channel_info)]),
    "ceov_channel_status": (c_int, [_handle]),
    "ceov_channel_abort": (c_int, [_handle]),
    "ceov_channel_release": (c_int, [_handle]),

    "ceov_pool_create": (c_int, [_handle, POINTER(ceov_pool_config), _ret_handle]),
    "ceov_pool_connect": (c_int, [_handle, c_uint64]),
    "ceov_pool_alloc": (c_int, [_handle, c_uint64, POINTER(c_void_p)]),
    "ceov_pool_free": (c_int, [_handle, c_void_p]),
    "ceov_pool_functions": (c_int, [_handle, POINTER(c_void_p), POINTER(c_void_p)]),
    "ceov_pool_query": (c_int, [_handle, POINTER(ceov_pool_info)]),
    "ceov_pool_release": (c_int, [_handle]),
}

# The largest number that each argument can hold, None where it is no number.
ARGUMENT_LIMITS = {name: [LIMITS.get(kind) for kind in arguments]
                   for name, (_, arguments) in PROTOTYPES.items()}


def check_arguments(name: str, arguments: Sequence[Any]) -> List[Any]:
    """Returns the arguments of the library's function `name` as a list, after a check that each
    number fits into its C type."""
    return [argument if limit is None else checked(argument, limit, name)
            for argument, limit in zip(arguments, ARGUMENT_LIMITS[name])]


# --- the library -------------------------------------------------------------------------

SYSTEM_NAME = "libceoverlap.so.0"


def library_path() -> str:
    """Returns the path of the library: what the environment variable CEOVERLAP_LIBRARY names,
    else the file of the package ceoverlap_lib where that is installed, else the name that the
    system's loader looks up."""
    told = os.environ.get("CEOVERLAP_LIBRARY")
    if told:
        return told
    try:
        from ceoverlap_lib import path
    except ImportError:
        return SYSTEM_NAME
    return str(path())


def load(path: str) -> ctypes.CDLL:
    """Opens the library and sets the prototypes of its functions. Raises ImportError, which
    says what to do, if the library cannot be opened or is too old."""
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            f"ceoverlap: {path} cannot be opened ({error}). Where libhwloc is "
            "missing, install it (Debian: libhwloc15); where libceoverlap is, install the "
            "package ceoverlap-lib, or name the file in CEOVERLAP_LIBRARY") from error
    for name, (result, arguments) in PROTOTYPES.items():
        try:
            call = getattr(library, name)
        except AttributeError:
            raise ImportError(f"ceoverlap: {path} has no {name}: it is older than this "
                              "package; install both of one version") from None
        call.restype = result
        call.argtypes = arguments
    return library


lib = load(library_path())
