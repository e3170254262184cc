/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_XML_TREE_H
#define CEI_XML_TREE_H

/*
 * Checks what hwloc assumes, without checking it, of the objects in its XML: sets exist, are
 * bounded, and lie within the parent's sets; numbers of processors and nodes are unique; bridges
 * have a bridge's attributes. xml_scan.c calls it element by element.
 */

#include <stdint.h>

#define CEI_XML_DEPTH_MAX      64u
#define CEI_XML_ATTRIBUTES_MAX 32u

struct cei_xml_word {                   /* a part of the text, without a NUL behind it */
	const char *at;
	uint64_t    n;
};

struct cei_xml_attribute {
	struct cei_xml_word name;
	struct cei_xml_word value;
};

struct cei_xml_element {
	struct cei_xml_word      name;
	uint32_t                 n_attributes;
	struct cei_xml_attribute attributes[CEI_XML_ATTRIBUTES_MAX];
};

struct cei_xml_tree;

/* Returns whether the word is this text. */
int cei_xml_is(const struct cei_xml_word *word, const char *text);

/* Returns the value of the attribute with this name. NULL: the element has no such attribute. */
const struct cei_xml_word *cei_xml_attribute(const struct cei_xml_element *element,
					     const char *name);

/* Returns whether the word names a type of objects. */
int cei_xml_is_type(const struct cei_xml_word *word);

/* Create the state of a check, and destroy it. NULL: no memory. Destroying NULL is allowed. */
struct cei_xml_tree *cei_xml_tree_create(void);
void cei_xml_tree_destroy(struct cei_xml_tree *tree);

/* Called when an element begins and when it ends; at most CEI_XML_DEPTH_MAX may be open. They
 * return NULL, or a description of the fault; after a fault only destroying the tree is
 * allowed. */
const char *cei_xml_tree_begin(struct cei_xml_tree *tree,
			       const struct cei_xml_element *element);
const char *cei_xml_tree_end(struct cei_xml_tree *tree);

#endif /* CEI_XML_TREE_H */
