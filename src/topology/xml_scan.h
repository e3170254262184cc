/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_XML_SCAN_H
#define CEI_XML_SCAN_H

/*
 * Validates untrusted XML before hwloc's parser reads it: it must be well-formed (expat),
 * use only elements and entities that hwloc writes, and be bounded in depth and size;
 * matrices must hold as many values as they announce; objects must satisfy xml_tree.h.
 * Takes time linear in the bytes.
 */

#include <stdint.h>

#define CEI_XML_BYTES_MAX    (UINT64_C(64) << 20)
#define CEI_XML_ELEMENTS_MAX 100000u     /* lstopo writes 8426 for 4096 processors */
#define CEI_XML_WHY_BYTES    96u

struct cei_xml_fault {
	uint32_t line;                  /* from 1 */
	char     why[CEI_XML_WHY_BYTES];
};

/* Validates a text that ends with a NUL, which n_bytes does not count. CEOV_ERR_INVALID: the text
 * is refused, and *ret_fault says why; it is not written otherwise. */
int cei_xml_scan(const char *text, uint64_t n_bytes, struct cei_xml_fault *ret_fault);

#endif /* CEI_XML_SCAN_H */
