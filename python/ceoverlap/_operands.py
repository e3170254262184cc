# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Arrays, tensors and buffers as operands of a channel's calls: where they are, how many items they
have, and of which dtype. The ways for NumPy's arrays and PyTorch's tensors are short, because calls
take few microseconds; neither package is imported here. `gpu` is the number of the GPU on which the
channel's rank is, None if it is on the host."""

from __future__ import annotations

import ctypes
import sys
from typing import Callable, Dict, NamedTuple, Optional

from . import _abi, errors
from .buffer import Array, memory_of

# Their sizes in bytes belong to what C and Python agree on: the counts are items.
_KINDS = {"bfloat16": (_abi.CEOV_BF16, 2), "float16": (_abi.CEOV_FP16, 2),
          "float32": (_abi.CEOV_FP32, 4), "float64": (_abi.CEOV_FP64, 8),
          "int8": (_abi.CEOV_INT8, 1), "uint8": (_abi.CEOV_UINT8, 1),
          "int16": (_abi.CEOV_INT16, 2), "uint16": (_abi.CEOV_UINT16, 2),
          "int32": (_abi.CEOV_INT32, 4), "uint32": (_abi.CEOV_UINT32, 4),
          "int64": (_abi.CEOV_INT64, 8), "uint64": (_abi.CEOV_UINT64, 8),
          "bool": (_abi.CEOV_BOOL, 1), "float8_e4m3fn": (_abi.CEOV_FP8_E4M3, 1),
          "float8_e5m2": (_abi.CEOV_FP8_E5M2, 1), "complex64": (_abi.CEOV_COMPLEX64, 8),
          "complex128": (_abi.CEOV_COMPLEX128, 16)}
CODES = {name: code for name, (code, _) in _KINDS.items()}
NAMES = {code: name for name, code in CODES.items()}
_BYTES = {code: n for code, n in _KINDS.values()}

# Of memoryview.format, where the size says which integer it is.
_SIGNED, _UNSIGNED, _FLOATS = "bhilqn", "BHILQNc", "efd"


class Operand(NamedTuple):
    """Memory of a call."""
    address: int
    n_items: int
    dtype: int                          # enum ceov_dtype
    held: object                        # keeps the memory where it is


_char_at = ctypes.c_char.from_buffer    # refuses what is read-only, empty, or has gaps
_address_of = ctypes.addressof
_array_codes: Dict[object, int] = {}    # by NumPy's dtype; only those that have a code
_tensor_codes: Dict[object, int] = {}   # by PyTorch's
_readers: Dict[type, Callable[..., Operand]] = {}       # of the two kinds, not of their subclasses


def operand(obj: Array, is_target: bool, gpu: Optional[int]) -> Operand:
    """Returns the operand that an array, a tensor or a buffer is. Raises InvalidError for memory
    with gaps, in another place than the rank's, or of a dtype that channels do not know, and, if it
    is a target, for read-only memory."""
    reader = _readers.get(type(obj))
    if reader is None:
        reader = _reader_for(type(obj))
    return reader(obj, is_target, gpu)


def _reader_for(kind: type) -> Callable[..., Operand]:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and issubclass(kind, torch.Tensor):
        if kind not in (torch.Tensor, torch.nn.Parameter):
            return _of_wrapped
        return _readers.setdefault(kind, _of_tensor)
    if numpy is not None and issubclass(kind, numpy.ndarray):
        return _readers.setdefault(kind, _of_array) if kind is numpy.ndarray else _of_array
    return _of_other


def _misplaced(what: str, gpu: Optional[int]) -> errors.InvalidError:
    """Returns the error for an operand that is not where the rank is."""
    if gpu is None:
        return errors.InvalidError(
            f"{what}: this channel's rank is on the host: pass host memory (of a tensor: "
            "tensor.cpu()), or make a channel of ranks on GPUs")
    return errors.InvalidError(
        f"{what}: this channel's rank is on GPU {gpu}: pass a tensor that is there "
        f"(tensor.to(\"cuda:{gpu}\")), or an object with __cuda_array_interface__")


def _of_tensor(tensor: Array, is_target: bool, gpu: Optional[int]) -> Operand:
    dtype = tensor.dtype
    code = _tensor_codes.get(dtype)
    if code is None:
        code = _tensor_codes[dtype] = _code_of(str(dtype).rpartition(".")[2])
    if not tensor.is_cpu if gpu is None else not tensor.is_cuda or tensor.get_device() != gpu:
        raise _misplaced(f"a tensor on {tensor.device}", gpu)
    if not tensor.is_contiguous():
        raise errors.InvalidError(
            f"a tensor with gaps (shape {tuple(tensor.shape)}, strides {tensor.stride()}): pass "
            "tensor.contiguous()")
    if tensor.is_conj() or tensor.is_neg():
        raise errors.InvalidError("a tensor whose signs are not in its memory: pass "
                                  "tensor.resolve_conj().resolve_neg()")
    return Operand(tensor.data_ptr(), tensor.numel(), code, tensor)


def _of_wrapped(tensor: Array, is_target: bool, gpu: Optional[int]) -> Operand:
    raise errors.InvalidError(f"a {type(tensor).__name__}: pass the plain tensor in it (of a "
                              "DTensor: to_local())")


def _of_array(array: Array, is_target: bool, gpu: Optional[int]) -> Operand:
    if gpu is not None:
        raise _misplaced("an array in host memory", gpu)
    dtype = array.dtype
    code = _array_codes.get(dtype)
    if code is None:
        code = _array_codes[dtype] = _code_of(dtype.name if dtype.isnative else str(dtype))
    try:
        held = _char_at(array)
        return Operand(_address_of(held), array.size, code, held)
    except (TypeError, ValueError, BufferError):        # see above; or NumPy has no such buffers
        pass
    if not array.flags.c_contiguous:
        raise errors.InvalidError(
            f"an array with gaps (shape {array.shape}, strides {array.strides} bytes): pass "
            "numpy.ascontiguousarray(array)")
    if is_target and not array.flags.writeable:
        raise errors.InvalidError("a read-only array cannot receive anything: pass a copy")
    return Operand(array.__array_interface__["data"][0], array.size, code, array)


def _of_other(obj: Array, is_target: bool, gpu: Optional[int]) -> Operand:
    try:
        view = memoryview(obj)
    except TypeError:                   # perhaps it has DLPack or an array interface
        return _of_memory(obj, is_target, gpu)
    if gpu is not None:
        raise _misplaced(f"a {type(obj).__name__} in host memory", gpu)
    if not view.c_contiguous:
        raise errors.InvalidError(f"a {type(obj).__name__} with gaps: make it contiguous")
    code = _code_of_format(view.format, view.itemsize)
    count = view.nbytes // view.itemsize
    if not count:
        return Operand(0, 0, code, obj)
    if not view.readonly:
        held = _char_at(view)
        return Operand(_address_of(held), count, code, held)
    if is_target:
        raise errors.InvalidError(f"a read-only {type(obj).__name__} cannot receive anything: "
                                  "pass a bytearray or an array")
    read = ctypes.c_char_p(obj if type(obj) is bytes else bytes(view))
    return Operand(ctypes.cast(read, ctypes.c_void_p).value or 0, count, code, read)


def _of_memory(obj: Array, is_target: bool, gpu: Optional[int]) -> Operand:
    memory = memory_of(obj)
    if memory.is_gpu != (gpu is not None) or memory.index not in (None, gpu):
        where = "in host memory" if not memory.is_gpu else (
            "on a GPU" if memory.index is None else f"on GPU {memory.index}")
        raise _misplaced(f"a {type(obj).__name__} {where}", gpu)
    if is_target and not memory.is_writable:
        raise errors.InvalidError(f"a read-only {type(obj).__name__} cannot receive anything")
    code = _code_of(memory.dtype)
    return Operand(memory.address, memory.size_bytes // _BYTES[code], code, memory)


def _code_of(name: str) -> int:
    code = CODES.get(name)
    if code is None:
        raise errors.InvalidError(f"channels do not know the dtype {name}: to move it, pass its "
                                  "bytes as uint8")
    return code


def _code_of_format(text: str, item_bytes: int) -> int:
    """Returns the code for a memoryview's format."""
    letter = text.lstrip("@=<" if sys.byteorder == "little" else "@=>!")
    kind = ("int" if letter in _SIGNED else "uint" if letter in _UNSIGNED else
            "float" if letter in _FLOATS else "bool" if letter == "?" else "")
    if not letter or not kind:
        return _code_of(repr(text))
    return _code_of(kind if kind == "bool" else f"{kind}{8 * item_bytes}")
