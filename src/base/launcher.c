/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "base/launcher.h"

#include <stdlib.h>

#include <ceoverlap/ceoverlap.h>

/* Those that start their own tasks by another one of the table come before it: tasks of mpirun in a
 * Slurm job, for one, inherit variables that srun has set for mpirun's own daemons. A batch script,
 * which is no task of a step, has SLURM_NTASKS, but not SLURM_STEP_NUM_TASKS. */
static const struct cei_launcher launchers[] = {
	{ "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK" },
	{ "jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK" },
	{ "mpirun (Open MPI)", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
	  "OMPI_COMM_WORLD_LOCAL_RANK" },
	{ "Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID" },
	{ "mpiexec (MPICH, Hydra)", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID" },
	{ "srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID" },
	{ "PMIx", "PMIX_RANK", NULL, "PMIX_LOCAL_RANK" },
};

static const char *value_of(const char *name)
{
	const char *text = name ? secure_getenv(name) : NULL;

	return text && *text ? text : NULL;
}

const struct cei_launcher *cei_launcher_find(void)
{
	size_t i;

	for (i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++)
		if (value_of(launchers[i].task) &&
		    (!launchers[i].n_tasks || value_of(launchers[i].n_tasks)))
			return &launchers[i];
	return NULL;
}

const struct cei_launcher *cei_launcher_of_several(void)
{
	const struct cei_launcher *launcher = cei_launcher_find();
	const char *text = launcher ? value_of(launcher->n_tasks) : NULL;
	char *end = NULL;

	/* A number that cannot be read may be of several. */
	return text && strtoul(text, &end, 10) == 1 && !*end ? NULL : launcher;
}

int cei_launcher_refuse(struct cei_report *report, const struct cei_launcher *launcher)
{
	const char *n_tasks = value_of(launcher->n_tasks);

	return cei_raise(report, CEOV_ERR_INVALID, 0, "%s started this process as task %s of %s "
			 "(%s, %s): to meet the others, set CEOVERLAP_BOOTSTRAP=pmix (srun "
			 "--mpi=pmix) or =store with CEOVERLAP_STORE=HOST:PORT of task 0; to meet "
			 "none, =alone", launcher->name, value_of(launcher->task),
			 n_tasks ? n_tasks : "several", launcher->task,
			 launcher->n_tasks ? launcher->n_tasks : "no count");
}
