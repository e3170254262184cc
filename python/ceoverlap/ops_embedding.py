# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Embedding bags whose tables are distributed over the ranks, and their backward.
``include/ceoverlap/embedding.h`` is the contract, and ceoverlap.ops says what operators have in
common.

Each rank looks up bags of its own tables for the samples of all ranks; pooled vectors go to the rank
that has the sample. Both operators take the same shape, equal at all ranks:

samples  how many samples each rank has; all of them are numbered in the order of ranks
tables   for each rank a list of its tables, which may be empty, as (rows, dim); dims are multiples
         of 8. Columns of pooled vectors are those of all tables, in the order of ranks
dtype    of tables, pooled vectors and gradients: "bfloat16", "float16" or "float32"
pooling  "sum" or "mean"

The bags of a rank are indices, int64 rows of tables, and offsets, int64: bag t * (samples of all
ranks) + s, of the own table t and sample s, has indices[offsets[bag]:offsets[bag + 1]]. weights,
float32, multiply rows; for sums only. Ranks without tables may give None for these.
"""

from __future__ import annotations

import ctypes
from typing import Any, Optional, Sequence, Tuple

from . import _abi, errors
from .buffer import Array, memory_of
from .ops import Tuning, Workspace, _n_of, _numbers, _Op, _scratch_bytes, _shape
from .plan import number_of
from .stream import StreamLike

_POOLINGS = {"sum": _abi.CEOV_POOL_SUM, "mean": _abi.CEOV_POOL_MEAN}
_BYTES = {"int64": 8, "float32": 4}

Tables = Sequence[Sequence[Tuple[int, int]]]


def _shape_of(samples: Sequence[int], tables: Tables, dtype: str, pooling: str,
              tuning: Optional[Tuning]) -> Any:
    if _n_of(tables, "tables") != _n_of(samples, "samples"):
        raise errors.InvalidError(f"tables: of {len(tables)} ranks, samples: of {len(samples)}")
    every = [table for local in tables for table in local]
    shape = _shape(_abi.ceov_embedding, dtype, tuning)
    shape.pooling = number_of(_POOLINGS, pooling, "pooling")
    shape.samples = _numbers(samples, "samples")
    shape.n_local = (ctypes.c_uint32 * len(tables))(*map(len, tables))
    shape.dims = _numbers([dim for _, dim in every], "tables")
    shape.rows = _numbers([rows for rows, _ in every], "tables")
    return shape


class _Embedding(_Op):
    """What both operators have in common."""

    _scratch_call = ""

    def __init__(self, workspace: Workspace, samples: Sequence[int], tables: Tables,
                 dtype: str = "float32", pooling: str = "sum", *,
                 tuning: Optional[Tuning] = None) -> None:
        if _n_of(samples, "samples") != workspace.context.n_ranks:
            raise errors.InvalidError(f"samples: of {len(samples)} ranks, the group has "
                                      f"{workspace.context.n_ranks}")
        shape = _shape_of(samples, tables, dtype, pooling, tuning)
        own = tables[workspace.rank]
        self.dtype: str = str(dtype)
        self.n_samples: int = sum(samples)
        self.n_own_samples: int = samples[workspace.rank]
        self.n_tables: int = len(own)
        self.n_elements: int = sum(rows * dim for rows, dim in own)
        self.n_columns: int = sum(dim for local in tables for _, dim in local)
        self.n_own_columns: int = sum(dim for _, dim in own)
        self.largest_dim: int = max((dim for _, dim in own), default=0)
        super().__init__(workspace, shape)

    @classmethod
    def scratch_bytes(cls, samples: Sequence[int], tables: Tables, dtype: str = "float32",
                      pooling: str = "sum", *, tuning: Optional[Tuning] = None) -> int:
        """Returns how much scratch memory its workspace needs."""
        return _scratch_bytes(cls._scratch_call,
                              _shape_of(samples, tables, dtype, pooling, tuning), len(samples))

    def _array(self, obj: Array, name: str, dtype: str, n: int) -> Optional[int]:
        """Returns the address of n numbers; None: there are none."""
        if obj is None and not n:
            return None
        memory = memory_of(obj)
        if memory.dtype != dtype or memory.size_bytes != n * _BYTES[dtype]:
            raise errors.InvalidError(f"{name}: shape {memory.shape} of {memory.dtype}, must be "
                                      f"{n} numbers of {dtype}")
        self._check_memory(memory, name, False)
        return memory.address

    def _matrix(self, obj: Array, name: str, *shape: int,
                is_result: bool = False) -> Optional[int]:
        """Returns the address of an operand; None: it has no elements, and is not given."""
        if obj is None and 0 in shape:
            return None
        return self._operand(obj, name, *shape, is_result=is_result).address

    def _bags(self, bags: _abi.ceov_embedding_bags, offsets: Array, weights: Array,
              n_indices: int) -> None:
        bags.n_indices = n_indices
        if self.n_tables:
            bags.offsets = self._array(offsets, "offsets", "int64",
                                       self.n_tables * self.n_samples + 1)
        if weights is not None:
            bags.weights = self._array(weights, "weights", "float32", n_indices)


class EmbeddingAllToAll(_Embedding):
    """Looks up bags; pooled vectors go to the ranks of the samples. The arguments are those that
    the module names."""

    _create_call = "ceov_embedding_a2a_create"
    _run_call = "ceov_embedding_a2a_run"
    _scratch_call = "ceov_embedding_a2a_scratch_bytes"

    def run(self, tables: Array, indices: Array, offsets: Array, pooled: Array,
            weights: Array = None, stream: Optional[StreamLike] = None) -> Array:
        """tables: the own tables one behind the other, of n_elements. indices, offsets, weights:
        the own bags; offsets may end before the indices do. pooled: own samples x columns of all
        tables. Returns pooled."""
        run = _abi.new(_abi.ceov_embedding_a2a_run)
        n_indices = 0 if indices is None else memory_of(indices).size_bytes // _BYTES["int64"]
        run.tables = self._matrix(tables, "tables", self.n_elements)
        run.bags.indices = self._array(indices, "indices", "int64", n_indices)
        self._bags(run.bags, offsets, weights, n_indices)
        run.pooled = self._matrix(pooled, "pooled", self.n_own_samples, self.n_columns,
                                  is_result=True)
        self._start(run, stream)
        return pooled


class EmbeddingBackward(_Embedding):
    """Brings gradients of pooled vectors to the ranks of the tables. The arguments are those that
    the module names."""

    _create_call = "ceov_embedding_backward_create"
    _run_call = "ceov_embedding_backward_run"
    _scratch_call = "ceov_embedding_backward_scratch_bytes"

    def run(self, grads: Array, offsets: Array = None, bag_grads: Array = None,
            row_grads: Array = None, weights: Array = None,
            stream: Optional[StreamLike] = None) -> Array:
        """grads: own samples x columns of all tables. offsets, weights: those of the forward run;
        only read for row_grads. Results, of which at least one is given where there are tables:

        bag_grads  samples of all ranks x own columns: the gradient of each bag
        row_grads  indices x largest own dim: the values of the tables' sparse gradients.
                   row_grads[i, :dim] is that of the row indices[i] of a table of dim columns"""
        run = _abi.new(_abi.ceov_embedding_backward_run)
        run.grads = self._matrix(grads, "grads", self.n_own_samples, self.n_columns)
        if bag_grads is not None:
            run.bag_grads = self._matrix(bag_grads, "bag_grads", self.n_samples,
                                         self.n_own_columns, is_result=True)
        if row_grads is not None:
            n_indices = memory_of(row_grads).shape[0]
            run.row_grads = self._matrix(row_grads, "row_grads", n_indices, self.largest_dim,
                                         is_result=True)
            self._bags(run.bags, offsets, weights, n_indices)
        self._start(run, stream)
