/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Answers questions about this process and its ranks. */

#include "base/site.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/hash.h"

/* The kernel writes a new random text here each time the machine starts. */
#define BOOT_ID "/proc/sys/kernel/random/boot_id"

/* Hashes that text. If it cannot be read, all processes get the same number. */
uint64_t cei_site_own_node(void)
{
	uint64_t node = CEI_HASH_START;
	int fd = open(BOOT_ID, O_RDONLY | O_CLOEXEC);
	char text[64];
	ssize_t n;

	if (fd < 0)
		return node;
	n = read(fd, text, sizeof(text));
	close(fd);
	if (n > 0)
		node = cei_hash(node, text, (size_t)n);
	return node ? node : 1;
}

int cei_site_is_local(const struct cei_site *site, uint32_t rank)
{
	if (rank >= site->n_ranks)
		return 0;
	return !site->nodes || site->nodes[rank] == site->nodes[site->members[0].rank];
}

uint32_t cei_site_n_local(const struct cei_site *site)
{
	return cei_site_local_index(site, site->n_ranks);
}

uint32_t cei_site_first_local(const struct cei_site *site)
{
	uint32_t rank = 0;

	while (!cei_site_is_local(site, rank))
		rank++;                 /* ends at the latest at a rank of this process */
	return rank;
}

uint32_t cei_site_local_index(const struct cei_site *site, uint32_t rank)
{
	uint32_t i, n = 0;

	for (i = 0; i < rank; i++)
		n += (uint32_t)cei_site_is_local(site, i);
	return n;
}

void cei_party_of_site(const struct cei_site *site, struct cei_party *ret_party)
{
	uint32_t i;

	*ret_party = (struct cei_party){ .n_ranks = site->n_members };
	for (i = 0; i < site->n_members; i++)
		ret_party->ranks[i] = site->members[i].rank;
}

int cei_party_has(const struct cei_party *party, uint32_t rank)
{
	uint32_t i;

	for (i = 0; i < party->n_ranks; i++)
		if (party->ranks[i] == rank)
			return 1;
	return 0;
}

int cei_party_has_twice(const struct cei_party *party)
{
	struct cei_party before = { .n_ranks = 0 };

	while (before.n_ranks < party->n_ranks) {
		if (cei_party_has(&before, party->ranks[before.n_ranks]))
			return 1;
		before.ranks[before.n_ranks] = party->ranks[before.n_ranks];
		before.n_ranks++;
	}
	return 0;
}

uint32_t cei_site_n_on_gpu(const struct cei_site *site, uint32_t gpu)
{
	uint32_t i, n = 0;

	for (i = 0; i < site->n_members; i++)
		n += site->members[i].place.kind == CEOV_PLACE_GPU &&
		     site->members[i].place.index == gpu;
	return n;
}
