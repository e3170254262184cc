# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Memory as other libraries hold it, and buffers, which are memory that ceoverlap knows."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, Dict, Optional, Sequence, Tuple

from . import _abi, _object, errors
from ._owner import Owner
from .place import Place, place_from

# --- memory ------------------------------------------------------------------------------

# What memory_of() takes: an array, a tensor or a buffer. Which memory an object has is seen when it
# is used, so this can be no narrower type.
Array = Any


class Memory:
    """A contiguous piece of memory and what is known about it.

    address      of its first byte
    size_bytes   its length
    is_gpu       whether it is GPU memory
    index        the GPU's number, None if the object did not tell it
    shape        as the object has it
    dtype        "float16", "bfloat16", "uint16", ...; "bytes" if the object did not tell it
    is_writable  whether it may be written
    owner        the objects that keep the memory alive
    """

    __slots__ = ("address", "size_bytes", "is_gpu", "index", "shape", "dtype",
                 "is_writable", "owner")

    def __init__(self, address: int, size_bytes: int, shape: Tuple[int, ...] = (),
                 dtype: str = "bytes", owner: object = None, *, is_gpu: bool = False,
                 index: Optional[int] = None, is_writable: bool = True) -> None:
        self.address: int = address
        self.size_bytes: int = size_bytes
        self.shape: Tuple[int, ...] = shape
        self.dtype: str = dtype
        self.owner: object = owner
        self.is_gpu: bool = is_gpu
        self.index: int | None = index
        self.is_writable: bool = is_writable

    def __repr__(self) -> str:
        where = "GPU" if self.is_gpu else "host"
        return f"<{self.size_bytes} bytes of {where} memory, {self.dtype} {self.shape}>"


_NAMES = {"<f2": "float16", "<f4": "float32", "<f8": "float64", "|u1": "uint8",
          "<u2": "uint16", "<u4": "uint32", "<u8": "uint64", "|i1": "int8", "<i2": "int16",
          "<i4": "int32", "<i8": "int64", "|b1": "bool"}


def _name_of(obj: Array, typestr: str) -> str:
    """Returns the dtype's name. Where typestr does not tell, as for bfloat16, the object's
    dtype is asked. NumPy's have a name; PyTorch's print themselves as "torch.bfloat16"."""
    dtype = getattr(obj, "dtype", typestr)
    return _NAMES.get(typestr) or str(getattr(dtype, "name", dtype)).rpartition(".")[2]


def _size_of(shape: Sequence[int], strides: Optional[Sequence[int]], item: int) -> int:
    """Returns the size in bytes, where an element has `item` bytes. Refuses memory with gaps.
    Strides count in bytes."""
    size = item
    for n in shape:
        size *= n
    if strides is None or not size:
        return size
    wanted = item
    for n, stride in zip(reversed(shape), reversed(strides)):
        if n != 1 and stride != wanted:
            raise errors.InvalidError(f"memory with gaps (shape {tuple(shape)}, strides "
                                      f"{tuple(strides)}): make it contiguous")
        wanted *= n
    return size


def _from_interface(obj: Array, interface: Dict[str, Any], is_gpu: bool) -> Memory:
    """Returns the Memory of an object with __array_interface__ or __cuda_array_interface__,
    which have the same fields."""
    typestr = interface["typestr"]
    shape = tuple(interface["shape"])
    size = _size_of(shape, interface.get("strides"), int(typestr[2:]))
    if interface.get("data") is None:
        raise errors.InvalidError("an array interface without an address")
    address, is_read_only = interface["data"]
    return Memory(address or 0, size, shape, _name_of(obj, typestr), obj, is_gpu=is_gpu,
                  index=_gpu_of(obj) if is_gpu else None, is_writable=not is_read_only)


def _gpu_of(obj: Array) -> Optional[int]:
    """Returns the number of the GPU, which the array interface does not tell; None if DLPack does
    not either."""
    if not hasattr(obj, "__dlpack_device__"):
        return None
    device, index = obj.__dlpack_device__()
    return index if device == _DL_CUDA else None


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


_DL_CPU, _DL_CUDA, _DL_CUDA_HOST, _DL_CUDA_MANAGED = 1, 2, 3, 13
_DL_NAMES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _from_dlpack(obj: Array) -> Memory:
    """Returns the Memory of an object that supports DLPack. The capsule is kept but not
    consumed, so it frees what it holds when it is dropped. No stream is synchronised, as for
    all memory here."""
    device, index = obj.__dlpack_device__()
    if device not in (_DL_CPU, _DL_CUDA, _DL_CUDA_HOST, _DL_CUDA_MANAGED):
        raise errors.InvalidError(f"DLPack device type {device}: host and CUDA memory only")
    is_gpu = device in (_DL_CUDA, _DL_CUDA_MANAGED)
    capsule = obj.__dlpack__(stream=-1) if is_gpu else obj.__dlpack__()
    tensor = _DLTensor.from_address(_pointer_of(capsule, b"dltensor"))
    n = tensor.ndim
    shape = tuple(tensor.shape[:n])
    item = tensor.bits * tensor.lanes // 8
    strides = tensor.strides[:n] if tensor.strides else None
    size = _size_of(shape, strides and [one * item for one in strides], item)
    name = f"{_DL_NAMES.get(tensor.code, f'dlpack{tensor.code}_')}{tensor.bits}"
    return Memory((tensor.data or 0) + tensor.byte_offset, size, shape, name,
                  (obj, capsule), is_gpu=is_gpu, index=index if is_gpu else None)


def _from_buffer_protocol(obj: Array) -> Memory:
    view = memoryview(obj)
    if not view.c_contiguous:
        raise errors.InvalidError("memory with gaps: make it contiguous")
    if view.readonly:
        raise errors.InvalidError(f"a {type(obj).__name__} is read-only: use a bytearray or "
                                  "an array")
    n = view.nbytes
    if not n:
        return Memory(0, 0, tuple(view.shape or ()), "bytes", obj)
    held = (ctypes.c_char * n).from_buffer(view)        # nobody resizes it meanwhile
    return Memory(ctypes.addressof(held), n, tuple(view.shape or ()), "bytes", (obj, held))


def memory_of(obj: Array) -> Memory:
    """Returns the Memory behind an array, a tensor or a buffer. Refuses memory with gaps.

    Looks for ``__cuda_array_interface__``, ``__array_interface__``, DLPack and the buffer
    protocol, in this order. No stream is synchronised: the caller has to order what is queued
    on the memory, by streams or marks."""
    if isinstance(obj, Memory):
        return obj
    for name, is_gpu in (("__cuda_array_interface__", True), ("__array_interface__", False)):
        try:                            # some objects have it for some of their kinds only
            interface = getattr(obj, name, None)
        except Exception:
            continue
        if interface is not None:
            return _from_interface(obj, interface, is_gpu)
    if hasattr(obj, "__dlpack__"):
        return _from_dlpack(obj)
    try:
        return _from_buffer_protocol(obj)
    except TypeError:
        raise errors.InvalidError(f"a {type(obj).__name__} has no memory that can be "
                                  "reached: give an array, a tensor or a buffer") from None


# --- buffers -----------------------------------------------------------------------------


class _View:
    """The base object of a NumPy view of a buffer. It keeps the buffer alive."""

    def __init__(self, buffer: Buffer, address: int, size_bytes: int) -> None:
        self.buffer = buffer
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (size_bytes,),
                                    "data": (address, False)}


class Buffer(_object.Object):
    """Memory that the library knows: registered or allocated by a rank of this process, or
    found at a peer. Made by the context's register(), allocate(), floating() and find_buffer().

    Registered memory is referenced until the buffer is released. NumPy views delay the release:
    release() returns False while a view lives, and after close() the last view to go releases
    the buffer."""

    _release_call = "ceov_buffer_release"
    _query = ("ceov_buffer_query", _abi.ceov_buffer_info)

    def __init__(self, context: Owner, rank: int, size_bytes: int) -> None:
        super().__init__(context, rank)
        self._size_bytes = size_bytes
        self.is_floating = False
        self.is_found = False
        self._views: weakref.WeakSet[_View] = weakref.WeakSet()

    @classmethod
    def _make(cls, context: Owner, rank: int, size_bytes: int, call: str,
              arguments: Tuple[Any, ...], kept: object = None) -> Buffer:
        self = cls(context, rank, size_bytes)
        self._make_handle(call, rank, *arguments, kept=kept)
        return self

    @classmethod
    def _register(cls, context: Owner, rank: int, memory: Memory) -> Buffer:
        if not memory.is_writable:
            raise errors.InvalidError("read-only memory cannot be registered")
        if memory.is_gpu:
            place = context.place(rank)
            if place.kind != "gpu" or memory.index not in (None, place.index):
                raise errors.InvalidError(f"memory of GPU {memory.index} cannot be rank "
                                          f"{rank}'s, which is on {place}")
        return cls._make(context, rank, memory.size_bytes, "ceov_buffer_register",
                         (memory.address, memory.size_bytes), memory)

    @classmethod
    def _create(cls, context: Owner, rank: int, size_bytes: int,
                is_floating: bool) -> Buffer:
        call = "ceov_buffer_float" if is_floating else "ceov_buffer_create"
        self = cls._make(context, rank, size_bytes, call, (size_bytes,))
        self.is_floating = is_floating
        return self

    @classmethod
    def _find(cls, context: Owner, rank: int, name: str, timeout_s: float) -> Buffer:
        self = cls(context, rank, 0)
        self._find_handle("ceov_buffer_find", name, timeout_s)
        self.is_found = True
        self._size_bytes = self._info().size_bytes
        return self

    @property
    def size_bytes(self) -> int:
        """The buffer's size."""
        return self._size_bytes

    @property
    def place(self) -> Optional[Place]:
        """Where the memory is; None for memory of another node, of which that is not known."""
        place = self._info().place
        is_afar = place.kind == _abi.CEOV_PLACE_HOST and place.index == _abi.CEOV_NOBODY
        return None if is_afar else place_from(place)

    @property
    def name(self) -> Optional[str]:
        """The name under which the buffer was shared or found; None if it was not."""
        return self._info().name.decode() or None

    def share(self, name: str) -> None:
        """Lets peers find the buffer under a name of 1 to 63 bytes."""
        self._invoke("ceov_buffer_share", _object.text_of(name, "name"))

    def address(self, rank: Optional[int] = None) -> Optional[int]:
        """Returns the address of the first byte as this process (host memory) or the given
        rank's GPU sees it. None: it cannot be reached from there, or the buffer is a floating
        one."""
        context = self._context
        handle = self._open_handle()
        with context._entered():
            address: Optional[int] = _abi.lib.ceov_buffer_base(handle, context._own(rank))
        return address

    def view(self, dtype: Any = "uint8", shape: Optional[Sequence[int]] = None,
             offset_bytes: int = 0) -> Array:
        """Returns a NumPy array on the buffer's memory, which has to be host memory of this
        process. Without a shape the array has one dimension and goes from the offset to the
        end. It must not be used after the context is closed."""
        import numpy

        self._open_handle()
        if self.is_found:
            raise errors.InvalidError(f"this buffer is rank {self._rank}'s, found here: only the "
                                      "process of that rank has views of it; plans reach it")
        place = self._context.place(self._rank)
        if place.kind != "host":
            raise errors.InvalidError(f"this buffer is on GPU {place.index}, whose memory has no "
                                      "views here: register() a tensor instead of allocate(), or "
                                      "wrap address() where you know better")
        address = self.address(self._rank)
        if address is None:
            raise errors.InvalidError("a floating buffer has no memory of its own")
        dtype = numpy.dtype(dtype)
        left = self._size_bytes - offset_bytes
        if shape is None:
            shape = (left // dtype.itemsize,)
        size = _size_of(tuple(shape), None, dtype.itemsize)
        if not 0 <= size <= left or offset_bytes < 0:
            raise errors.InvalidError(f"{dtype} {tuple(shape)} from byte {offset_bytes} on: "
                                      f"the buffer has {self._size_bytes} bytes")
        view = _View(self, address + offset_bytes, size)
        self._views.add(view)
        return numpy.asarray(view).view(dtype).reshape(tuple(shape))

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Array:
        """For numpy.asarray(): a view of the buffer's bytes, see view()."""
        import numpy

        view = self.view()
        if copy is False and dtype not in (None, view.dtype):
            raise ValueError(f"a buffer's bytes are uint8, not {dtype}: take view({dtype!r})")
        return numpy.array(view, dtype, copy=True) if copy else numpy.asarray(view, dtype)

    def __buffer__(self, _flags: int) -> memoryview:
        """For memoryview(), from Python 3.12 on: the buffer's bytes, see view(). Older versions
        ask no class that is written in Python: there it is memoryview(buffer.view())."""
        return memoryview(self.view())

    def __dlpack_device__(self) -> Tuple[int, int]:
        """For from_dlpack() of NumPy, PyTorch and others: where the bytes are, see view()."""
        device, index = self.view().__dlpack_device__()
        return int(device), int(index)

    def __dlpack__(self, *, stream: Optional[int] = None,
                   max_version: Optional[Tuple[int, int]] = None,
                   dl_device: Optional[Tuple[int, int]] = None,
                   copy: Optional[bool] = None) -> Any:
        """For from_dlpack(): the buffer's bytes as uint8, see view(). What the caller asks for is
        NumPy's to refuse; before 2.1 it knows none of these but the stream."""
        asked = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        return self.view().__dlpack__(**{name: value for name, value in asked.items()
                                         if value is not None})

    def _try_release(self) -> bool:
        if self.is_open and len(self._views):
            return False
        return super()._try_release()

    def _leave(self) -> None:
        """Ends the caller's use of the buffer. If views live, the last one to go releases it."""
        if not len(self._views):
            super()._leave()
