/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_RAILS_H
#define CEI_RAILS_H

/*
 * Which NICs serve which GPUs, and the network interfaces on which a process opens rails to other
 * nodes. Pure functions of a machine.
 */

#include "topology/machine.h"

#define CEI_RAILS_MAX         8u        /* of a process */
#define CEI_RAIL_DEVICE_BYTES 64u       /* name of a network interface, with the final 0 */
#define CEI_RAIL_WHY_BYTES_MAX 160u

/* Assigns a NIC to each GPU. Any RDMA device comes before any net device, then the nearest NIC
 * wins (same switch, same tree, same node, same package). Of equally near NICs, one whose PCIe link
 * has less than half the rate of the fastest is left out. Among the others it takes the one
 * that serves the fewest GPUs so far, so that GPUs spread evenly over NICs. GPUs with fewer such
 * NICs to choose from choose first. ret_nics: [n_gpus], CEOV_NOBODY where the machine has no
 * NIC. */
void cei_rails_assign(const struct cei_machine *machine, uint32_t *ret_nics);

struct cei_rails_request {
	const uint32_t *gpus;           /* of the process's members; one may be there several
					 * times */
	uint32_t        n_gpus;         /* 0: all members are on host memory */
	/* The network interfaces that can be used, as the transport names them: "eth0", and
	 * "mlx5_0:1" for port 1 of an RDMA device. */
	const char    (*devices)[CEI_RAIL_DEVICE_BYTES];
	uint32_t        n_devices;
};

struct cei_rail_choice {
	char     device[CEI_RAIL_DEVICE_BYTES]; /* one of the request's */
	uint32_t nic;                   /* of the machine */
	uint32_t gpu;                   /* the GPU that it was chosen for; of several, the lowest */
};

struct cei_rails_choice {
	uint32_t n;                     /* 0: nothing was chosen; why says the reason */
	struct cei_rail_choice rails[CEI_RAILS_MAX];
	uint32_t own[CEI_MACHINE_GPUS_MAX];     /* by GPU: the rail (an index in rails) of its
						 * assigned NIC; CEOV_NOBODY: none */
	char     why[CEI_RAIL_WHY_BYTES_MAX];   /* one line for people */
};

/* Chooses the rails of a process: the NICs that are assigned to the GPUs of its members as above,
 * of those NICs alone that can be used. NICs that are left, and as good for a GPU as its own, are
 * shared out evenly among such GPUs. An RDMA device that cannot be used as one counts as the net
 * device of the same card. Rails are in the order of the machine's NICs. More than
 * CEI_RAILS_MAX are not opened; the GPUs' own NICs come first.
 *
 * All processes of a machine that see the same GPUs decide about the same assignment, so they do
 * not meet on a NIC while another one serves nobody. */
void cei_rails_choose(const struct cei_machine *machine, const struct cei_rails_request *request,
		      struct cei_rails_choice *ret_choice);

/* Writes why a rail was chosen: "RDMA device, below one PCI switch with GPU 0". */
void cei_rails_explain(const struct cei_machine *machine, const struct cei_rail_choice *rail,
		       char ret_why[CEI_RAIL_WHY_BYTES_MAX]);

/* Likewise why a NIC of the machine got no rail, after cei_rails_choose() with the same request.
 * Returns 0, and writes nothing, if it got one; else 1. */
int  cei_rails_explain_left(const struct cei_machine *machine,
			    const struct cei_rails_request *request,
			    const struct cei_rails_choice *choice, uint32_t nic,
			    char ret_why[CEI_RAIL_WHY_BYTES_MAX]);

#endif /* CEI_RAILS_H */
