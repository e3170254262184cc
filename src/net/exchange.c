/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Chooses the means of an exchange. */

#include "net/exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/launcher.h"

_Static_assert((int)CEI_MEANS_CALLBACK == (int)CEOV_BOOTSTRAP_CALLBACK &&
	       (int)CEI_MEANS_PMIX == (int)CEOV_BOOTSTRAP_PMIX &&
	       (int)CEI_MEANS_STORE == (int)CEOV_BOOTSTRAP_STORE, "means are those of the API");

/* In the order in which they are tried, and of enum cei_means; NULL ends the table. */
static const struct cei_exchange_ops *const all_means[] = {
	&cei_exchange_callback, &cei_exchange_pmix, &cei_exchange_store, NULL
};

/* Earlier versions let groups meet by files in a folder that all nodes share. */
static int raise_folder(struct cei_report *report)
{
	return cei_raise(report, CEOV_ERR_INVALID, 0, "groups cannot meet in a shared folder any "
			 "more: choose a store, and name an address at which process 0 is to "
			 "listen, host:port (CEOVERLAP_STORE, or ceov_network.where)");
}

/* The names that CEOVERLAP_BOOTSTRAP may have. The callback is not among them: only a call can
 * bring one. */
static int means_from_environment(struct cei_report *report, uint32_t *ret_means)
{
	const char *text = secure_getenv("CEOVERLAP_BOOTSTRAP");
	uint32_t i;

	*ret_means = CEI_MEANS_SHOWN;
	if (!text || !*text)
		return 0;
	if (!strcmp(text, "folder"))
		return raise_folder(report);
	for (i = 1; all_means[i]; i++) {
		if (strcmp(text, all_means[i]->name))
			continue;
		*ret_means = i + 1;
		return 0;
	}
	return cei_raise(report, CEOV_ERR_INVALID, 0,
			 "CEOVERLAP_BOOTSTRAP is '%s', must be 'pmix', 'store' or 'alone'", text);
}

static int raise_none(struct cei_report *report)
{
	const struct cei_launcher *launcher = cei_launcher_of_several();

	if (launcher)
		return cei_launcher_refuse(report, launcher);
	return cei_raise(report, CEOV_ERR_INVALID, 0,
			 "nothing says how the group's processes find each other: start them "
			 "with mpirun, srun or torchrun, or name an address at which process 0 is "
			 "to listen and number them (CEOVERLAP_STORE, _PROCESS, _PROCESSES)");
}

static int choose(struct cei_exchange *exchange)
{
	const struct cei_exchange_config *config = &exchange->config;
	uint32_t means = config->means, i;
	int r;

	if (means == CEOV_BOOTSTRAP_FOLDER)
		return raise_folder(config->report);
	if (means > CEI_MEANS_STORE)
		return cei_raise(config->report, CEOV_ERR_INVALID, 0,
				 "bootstrap %u is not known, must be 0 to %u", means,
				 CEOV_BOOTSTRAP_ALONE);
	r = means || config->all_gather ? 0 : means_from_environment(config->report, &means);
	for (i = 0; !r && all_means[i]; i++) {
		if (means && means != i + 1)
			continue;
		exchange->ops = all_means[i];
		exchange->config.means = i + 1;
		r = exchange->ops->detect(exchange);
	}
	if (r)
		return r < 0 ? r : 0;
	if (!means)
		return raise_none(config->report);
	return cei_raise(config->report, CEOV_ERR_INVALID, 0, "the group is to meet by '%s', but "
			 "what this needs is not set: see docs/configuration.md",
			 all_means[means - 1]->name);
}

static int check_numbers(const struct cei_exchange *exchange)
{
	const struct cei_exchange_config *config = &exchange->config;
	uint32_t n = exchange->n_processes;

	if (n > CEI_GATHERED_PROCESSES_MAX || (n && exchange->process >= n))
		return cei_raise(config->report, CEOV_ERR_INVALID, 0, "this is process %u of %u: "
				 "it must be one of 0 to N - 1, and N at most %u",
				 exchange->process, n, CEI_GATHERED_PROCESSES_MAX);
	if (!config->n_processes || !n ||
	    (n == config->n_processes && exchange->process == config->process))
		return 0;
	return cei_raise(config->report, CEOV_ERR_INVALID, 0,
			 "the call says this is process %u of %u, %s says process %u of %u",
			 config->process, config->n_processes, exchange->ops->name,
			 exchange->process, n);
}

int cei_exchange_open(struct cei_exchange *exchange, const struct cei_exchange_config *config,
		      uint64_t deadline_ns)
{
	int r;

	memset(exchange, 0, sizeof(*exchange));
	exchange->config = *config;
	r = choose(exchange);
	if (!r)
		r = check_numbers(exchange);
	if (r)
		return r;
	if (exchange->ops->open)
		r = exchange->ops->open(exchange, deadline_ns);
	if (r)
		return r;
	r = check_numbers(exchange);
	if (r)
		cei_exchange_close(exchange);
	return r;
}

int cei_exchange_all_gather(struct cei_exchange *exchange, const void *own, uint32_t n_bytes,
			    uint64_t deadline_ns, struct cei_gathered *ret_gathered)
{
	int r;

	memset(ret_gathered, 0, sizeof(*ret_gathered));
	if (n_bytes > CEI_GATHERED_BYTES_MAX)
		return cei_raise(exchange->config.report, CEOV_ERR_INVALID, 0,
				 "%u bytes for the group's other processes, at most %u", n_bytes,
				 CEI_GATHERED_BYTES_MAX);
	r = exchange->ops->all_gather(exchange, own, n_bytes, deadline_ns, ret_gathered);
	exchange->n_rounds++;
	return r;
}

void cei_exchange_close(struct cei_exchange *exchange)
{
	if (exchange->ops->close)
		exchange->ops->close(exchange);
	exchange->private = NULL;
}
