/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Built where pmix.h was not found: the environment may show PMIx, but this build cannot use it. */

#include <stdlib.h>

#include "net/means.h"

static int detect(struct cei_exchange *exchange)
{
	if (!secure_getenv("PMIX_NAMESPACE") || !secure_getenv("PMIX_RANK"))
		return 0;
	cei_log(exchange->config.report, CEI_LOG_INFO, "PMIx has started this process, but this "
		"build of ceoverlap was made without pmix.h; other means are looked for");
	return 0;
}

const struct cei_exchange_ops cei_exchange_pmix = {
	.name = "pmix",
	.detect = detect,
};
