/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_NICS_H
#define CEI_NICS_H

/*
 * Which NICs serve which GPUs, and the network interface by which a process reaches other nodes.
 * Pure functions of a machine.
 */

#include "topology/machine.h"

#define CEI_NIC_DEVICE_BYTES 64u        /* name of a network interface, with the final 0 */
#define CEI_NIC_WHY_BYTES    160u

/* Assigns a NIC to each GPU. Any RDMA device comes before any net device, then the nearest NIC
 * wins (same switch, same tree, same node, same package). Of equally near NICs, one whose PCIe link
 * has less than half the rate of the fastest is left out. Among the others it takes the one
 * that serves the fewest GPUs so far, so that GPUs spread evenly over NICs. GPUs with fewer such
 * NICs to choose from choose first. ret_nics: [n_gpus], CEOV_NOBODY where the machine has no
 * NIC. */
void cei_nics_assign(const struct cei_machine *machine, uint32_t *ret_nics);

struct cei_nic_request {
	const uint32_t *gpus;           /* of the process's members; one may be there several
					 * times */
	uint32_t        n_gpus;         /* 0: all members are on host memory */
	/* The network interfaces that can be used, as the transport names them: "eth0", and
	 * "mlx5_0:1" for port 1 of an RDMA device. */
	const char    (*devices)[CEI_NIC_DEVICE_BYTES];
	uint32_t        n_devices;
	const char     *named;          /* of these the ones to choose from, separated by commas;
					 * NULL: all */
};

struct cei_nic_choice {
	uint32_t nic;                   /* of the machine; CEOV_NOBODY: the topology has chosen
					 * none */
	uint32_t gpu;                   /* the GPU that it was chosen for */
	char     device[CEI_NIC_DEVICE_BYTES];  /* the interface: one of the request's, or, where
					 * the topology has chosen none, the first that is named;
					 * empty: any */
	char     why[CEI_NIC_WHY_BYTES];        /* one line for people: "RDMA device, below one PCI
					 * switch with GPU 0" */
};

/* Chooses the NIC of a process: the one that is assigned as above to the GPU of the first of its
 * members that is on one, of those NICs alone that can be used and may be chosen. An RDMA device
 * that cannot be used as one counts as the net device of the same card.
 *
 * All processes of a machine that see the same GPUs decide about the same assignment, so they do
 * not meet on a NIC while another one serves nobody. machine NULL: its topology is not known. */
void cei_nic_choose(const struct cei_machine *machine, const struct cei_nic_request *request,
		    struct cei_nic_choice *ret_choice);

/* Writes why a NIC of the machine is not used, after cei_nic_choose() with the same request.
 * Returns 0, and writes nothing, if it is used; else 1. */
int  cei_nic_explain_left(const struct cei_machine *machine, const struct cei_nic_request *request,
			  const struct cei_nic_choice *choice, uint32_t nic,
			  char ret_why[CEI_NIC_WHY_BYTES]);

#endif /* CEI_NICS_H */
