# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The methods that this version of PyTorch's base class of backends, or of process groups, has:
each is overridden by the backend "ceov", or left for a reason that is told here. A new version that
brings another one fails."""

import unittest

from backend_rig import IS_BY_DEVICE, by_device, whole

from ceoverlap.torch import _compat
from ceoverlap.torch.backend import _base, _whole
from ceoverlap.torch.backend._work import OnStream, Together, Work

LEFT_OF_BACKENDS = {
    "no method of a backend": "Options _pybind11_conduit_v1_",
    "the base class knows it": "rank size bound_device_id _set_group_uid",
    "PyTorch's C++ has it from what getBackendName() says": "name _get_backend_name",
    "PyTorch's C++ calls the names without underscore": "_start_coalescing _end_coalescing",
    "a property of ours says that it is not supported": """shrink new_window reconfigure
        get_reconfigure_handle _start_time_estimate _end_time_estimate""",
    "the base class says that it is not supported": """mem_allocator memory_stats
        supports_abort_hooks register_abort_hook unregister_abort_hook suspend resume merge""",
    "completion hooks cannot be overridden from Python": """supports_completion_hooks
        _register_on_completion_hook _wait_for_pending_works _enable_collectives_timing""",
    "errors are raised by the calls": "get_error",
    "a time for calls to come, which the base class ignores": "_add_ephemeral_timeout",
    "of symmetric memory, whose backend ceov is not": "setUsePgForSymmMemRendezvous",
}
LEFT_OF_GROUPS = {
    "no method of a process group": """BackendType CUSTOM GLOO MPI NCCL UCC UNDEFINED XCCL
        _pybind11_conduit_v1_ boxed unbox""",
    "the base class knows it": "rank size bound_device_id _id _backend_id",
    "the base class asks the backends that ceov registers": """_device_types _register_backend
        _set_default_backend _enable_collectives_timing""",
    "PyTorch's C++ has it from getGroupName() and its like": """_set_group_name _set_group_desc
        group_name group_desc""",
    "hooks are of PyTorch's own backends": """_has_hooks _register_on_completion_hook
        _wait_for_pending_works""",
    "PyTorch splits groups of its own backends only": "split_group merge_remote_group",
}
LEFT_OF_WORKS = {
    "no method of a handle": "_pybind11_conduit_v1_ boxed unbox",
    "for PyTorch's own flight recorder and hooks": "_get_duration _get_op_type _get_sequence_number",
    "of calls on GPUs' streams": "get_future_result",
    "the base class's, which says that there is none": "timeout",
}


def methods_of(kind):
    """The names that a class has beyond those of every object."""
    return set(dir(kind)) - set(dir(object))


def overridden(kind):
    """The names that classes of ours define."""
    return {name for one in kind.__mro__ if one.__module__.startswith("ceoverlap")
            for name in vars(one)}


def unknown(kind, base, left):
    """The names that are neither overridden nor left, and those that are both."""
    names = {name for some in left.values() for name in some.split()}
    return (sorted(methods_of(base) - overridden(kind) - names),
            sorted(overridden(kind) & methods_of(base) & names))


class Methods(unittest.TestCase):

    def test_what_is_unknown_is_seen(self):
        class Newer(_compat.Backend):
            def brings_more(self):
                """What no version has."""

        self.assertEqual(unknown(Work, _compat.Work, {})[1], [])
        self.assertIn("boxed", unknown(Work, _compat.Work, {})[0])
        self.assertIn("brings_more", unknown(_base.Backend, Newer, LEFT_OF_BACKENDS)[0])
        self.assertEqual(unknown(Work, _compat.Work, {"twice": "wait"})[1], ["wait"])

    @by_device
    def test_of_backends(self):
        self.assertEqual(unknown(_base.Backend, _compat.Backend, LEFT_OF_BACKENDS), ([], []))

    @whole
    def test_of_process_groups(self):
        self.assertEqual(unknown(_whole.Whole, _compat.ProcessGroup, LEFT_OF_GROUPS), ([], []))

    def test_of_handles(self):
        for kind in (Work, OnStream, Together):
            self.assertEqual(unknown(kind, _compat.Work, LEFT_OF_WORKS), ([], []), kind)

    def test_what_compiled_parts_call_is_there(self):
        """PyTorch's C++ calls overrides by names that the base classes do not show."""
        wanted = "getBackendName abort shutdown"
        if IS_BY_DEVICE:
            wanted += " start_coalescing end_coalescing split options set_timeout"
        else:
            wanted += " setGroupName getGroupName setGroupDesc getGroupDesc"
        kind = _base.Backend if IS_BY_DEVICE else _whole.Whole
        self.assertEqual(set(wanted.split()) - overridden(kind), set())


if __name__ == "__main__":
    unittest.main()
