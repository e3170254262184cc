/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "base/cuda_errors.h"

#include <stddef.h>

/* Those of cuda.h of CUDA 13 whose description says that the process must be terminated, or that
 * the context cannot be used any more; and errors of ECC, NVLink and the MPS server, which end
 * contexts likewise. The numbers are part of the driver's interface; older headers lack some of
 * the names. */
static const int lasting[] = {
	214,            /* ECC_UNCORRECTABLE */
	220,            /* NVLINK_UNCORRECTABLE */
	226,            /* CONTAINED: an error of memory, contained to this process */
	700,            /* ILLEGAL_ADDRESS */
	702,            /* LAUNCH_TIMEOUT */
	709,            /* CONTEXT_IS_DESTROYED */
	710,            /* ASSERT */
	714,            /* HARDWARE_STACK_ERROR */
	715,            /* ILLEGAL_INSTRUCTION */
	716,            /* MISALIGNED_ADDRESS */
	717,            /* INVALID_ADDRESS_SPACE */
	718,            /* INVALID_PC */
	719,            /* LAUNCH_FAILED */
	721,            /* TENSOR_MEMORY_LEAK */
	806,            /* MPS_RPC_FAILURE: its server has gone */
	810,            /* MPS_CLIENT_TERMINATED */
	911,            /* EXTERNAL_DEVICE */
};

int cei_cuda_error_lasts(int error)
{
	size_t i;

	for (i = 0; i < sizeof(lasting) / sizeof(lasting[0]); i++)
		if (lasting[i] == error)
			return 1;
	return 0;
}
