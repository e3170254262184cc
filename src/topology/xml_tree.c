/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "topology/xml_tree.h"

#include <hwloc.h>
#include <stdlib.h>
#include <string.h>

#define CPUS_MAX       16384            /* more than hwloc itself is tested with */
#define NODES_MAX      4096
#define INDEXES_MAX    (1 << 22)
#define SIZE_MAX_BYTES (UINT64_C(1) << 50)
#define CHILDREN_MAX   8192u            /* hwloc compares each child with all others */
#define SET_TEXT_BYTES 8192u            /* CPUS_MAX bits as hwloc writes them */

enum sort {                             /* of an element */
	NOTHING,
	TOPOLOGY,
	NORMAL,                         /* objects: with processors, ... */
	MEMORY,
	IO,
	MISC,
	NOTE,                           /* elements other than objects */
};

static const struct {
	const char *name;
	enum sort   sort;
} types[] = {
	{ "Machine", NORMAL }, { "Package", NORMAL }, { "Die", NORMAL }, { "Core", NORMAL },
	{ "PU", NORMAL }, { "Group", NORMAL }, { "L1Cache", NORMAL }, { "L2Cache", NORMAL },
	{ "L3Cache", NORMAL }, { "L4Cache", NORMAL }, { "L5Cache", NORMAL },
	{ "L1iCache", NORMAL }, { "L2iCache", NORMAL }, { "L3iCache", NORMAL },
	{ "NUMANode", MEMORY }, { "MemCache", MEMORY }, { "Bridge", IO }, { "PCIDev", IO },
	{ "OSDev", IO }, { "Misc", MISC },
};

/* Elements that are not objects: where they may stand and which attributes they may have.
 * hwloc aborts at anything else. */
static const struct {
	const char *name;
	const char *within;
	const char *attributes;         /* each name followed by a space */
} notes[] = {
	{ "info", "object", "name value " },
	{ "page_type", "object", "size count " },
	{ "userdata", "object", "name length encoding " },
	{ "support", "topology", "name value " },
	{ "memattr", "topology", "name flags " },
	{ "cpukind", "topology", "cpuset forced_efficiency " },
	{ "distances2", "topology", "type nbobjs kind name indexing " },
	{ "distances2hetero", "topology", "nbobjs kind name " },
	{ "indexes", "distances2", "length " },
	{ "u64values", "distances2", "length " },
	{ "indexes", "distances2hetero", "length " },
	{ "u64values", "distances2hetero", "length " },
	{ "info", "cpukind", "name value " },
	{ "memattr_value", "memattr", "target_obj_type target_obj_gp_index value "
	  "initiator_cpuset initiator_obj_type initiator_obj_gp_index " },
};

enum set { CPUS, ALL_CPUS, NODES, ALL_NODES, SETS };

static const char *const set_names[SETS] = {
	"cpuset", "complete_cpuset", "nodeset", "complete_nodeset",
};

struct level {                          /* an element that has begun and not yet ended */
	struct cei_xml_word name;
	enum sort           sort;
	int                 is_leaf;    /* has no processors or memory below it */
	uint32_t            n_children;
	int                 has_pages;  /* may have page types as children */
	int                 has_objects;/* has had an object as child; notes must come before */
	hwloc_bitmap_t      sets[SETS]; /* of NORMAL and MEMORY elements */
	hwloc_bitmap_t      below;      /* union of the children's processors so far */
	int                 has_empty;  /* had a child without processors; these come last */
};

struct cei_xml_tree {
	uint32_t       depth;
	uint32_t       n_roots;
	uint32_t       n_pus;
	hwloc_bitmap_t nodes;           /* numbers of the NUMA nodes seen so far */
	hwloc_bitmap_t indexes;         /* gp_index of the objects seen so far */
	struct level   levels[CEI_XML_DEPTH_MAX];
	char           text[SET_TEXT_BYTES];
};

int cei_xml_is(const struct cei_xml_word *word, const char *text)
{
	return word->n == strlen(text) && !memcmp(word->at, text, word->n);
}

const struct cei_xml_word *cei_xml_attribute(const struct cei_xml_element *element,
					     const char *name)
{
	uint32_t i;

	for (i = 0; i < element->n_attributes; i++)
		if (cei_xml_is(&element->attributes[i].name, name))
			return &element->attributes[i].value;
	return NULL;
}

void cei_xml_tree_destroy(struct cei_xml_tree *tree)
{
	uint32_t i, j;

	if (!tree)
		return;
	for (i = 0; i < CEI_XML_DEPTH_MAX; i++) {
		for (j = 0; j < SETS; j++)
			hwloc_bitmap_free(tree->levels[i].sets[j]);
		hwloc_bitmap_free(tree->levels[i].below);
	}
	hwloc_bitmap_free(tree->nodes);
	hwloc_bitmap_free(tree->indexes);
	free(tree);
}

struct cei_xml_tree *cei_xml_tree_create(void)
{
	struct cei_xml_tree *tree = calloc(1, sizeof(*tree));
	int is_whole = tree != NULL;
	uint32_t i, j;

	for (i = 0; is_whole && i < CEI_XML_DEPTH_MAX; i++) {
		for (j = 0; j < SETS; j++) {
			tree->levels[i].sets[j] = hwloc_bitmap_alloc();
			is_whole &= tree->levels[i].sets[j] != NULL;
		}
		tree->levels[i].below = hwloc_bitmap_alloc();
		is_whole &= tree->levels[i].below != NULL;
	}
	if (is_whole) {
		tree->nodes = hwloc_bitmap_alloc();
		tree->indexes = hwloc_bitmap_alloc();
	}
	if (is_whole && tree->nodes && tree->indexes)
		return tree;
	cei_xml_tree_destroy(tree);
	return NULL;
}

/* --- attributes ----------------------------------------------------------------------- */

/* Returns the value of a number of up to ten digits; -1: the word is no such number. */
static int64_t number(const struct cei_xml_word *word)
{
	int64_t value = 0;
	uint64_t i;

	if (!word || !word->n || word->n > 10)
		return -1;
	for (i = 0; i < word->n; i++) {
		if (word->at[i] < '0' || word->at[i] > '9')
			return -1;
		value = value * 10 + word->at[i] - '0';
	}
	return value;
}

/* Whether a word is a plausible size of memory: 0 bytes to 1 PiB. */
static int is_size(const struct cei_xml_word *word)
{
	uint64_t value = 0, i;

	if (!word)
		return 1;
	if (!word->n || word->n > 16)
		return 0;
	for (i = 0; i < word->n; i++) {
		if (word->at[i] < '0' || word->at[i] > '9')
			return 0;
		value = value * 10 + (uint64_t)(word->at[i] - '0');
	}
	return value <= SIZE_MAX_BYTES;
}

/* Whether a word is a set that hwloc parses safely. It would accept an infinite set
 * ("0xf...f"), read beyond the end of an empty one, and abort at one that begins with a
 * comma. */
static int is_set(const struct cei_xml_word *word)
{
	uint64_t i;

	if (!word->n || word->n >= SET_TEXT_BYTES || word->at[0] == ',')
		return 0;
	for (i = 0; i < word->n; i++)
		if (!strchr("0123456789abcdefABCDEFx,", word->at[i]))
			return 0;
	return 1;
}

/* Checks the sets of an element that is not an object, because hwloc parses sets there, too. */
static int has_only_sets(const struct cei_xml_element *element)
{
	const struct cei_xml_word *name;
	uint32_t i;

	for (i = 0; i < element->n_attributes; i++) {
		name = &element->attributes[i].name;
		if (name->n >= 6 && !memcmp(name->at + name->n - 3, "set", 3) &&
		    !is_set(&element->attributes[i].value))
			return 0;
	}
	return 1;
}

static const char *read_set(struct cei_xml_tree *tree, const struct cei_xml_word *word,
			    enum set set)
{
	hwloc_bitmap_t to = tree->levels[tree->depth].sets[set];

	if (!word)
		return "an object without one of cpuset, complete_cpuset, nodeset and "
		       "complete_nodeset";
	if (!is_set(word))
		return "a set that is none";
	memcpy(tree->text, word->at, word->n);
	tree->text[word->n] = '\0';
	if (hwloc_bitmap_sscanf(to, tree->text) ||
	    hwloc_bitmap_last(to) >= (set == CPUS || set == ALL_CPUS ? CPUS_MAX : NODES_MAX))
		return "a set that is none, or of too many";
	return NULL;
}

static const char *read_sets(struct cei_xml_tree *tree,
			     const struct cei_xml_element *element)
{
	struct level *level = &tree->levels[tree->depth];
	const char *why = NULL;
	int set;

	for (set = 0; set < SETS && !why; set++)
		why = read_set(tree, cei_xml_attribute(element, set_names[set]),
			       (enum set)set);
	if (why)
		return why;
	if (!hwloc_bitmap_isincluded(level->sets[CPUS], level->sets[ALL_CPUS]) ||
	    !hwloc_bitmap_isincluded(level->sets[NODES], level->sets[ALL_NODES]))
		return "a set that is larger than its complete one";
	for (set = 0; set < SETS && tree->depth > 1; set++)
		if (!hwloc_bitmap_isincluded(level->sets[set], level[-1].sets[set]))
			return "a set that is larger than its parent's";
	hwloc_bitmap_zero(level->below);
	return NULL;
}

static enum sort sort_of(const struct cei_xml_word *type)
{
	size_t i;

	for (i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (cei_xml_is(type, types[i].name))
			return types[i].sort;
	return NOTHING;
}

int cei_xml_is_type(const struct cei_xml_word *word)
{
	return sort_of(word) != NOTHING;
}

/* --- objects -------------------------------------------------------------------------- */

/* Checks that the allowed sets leave something: hwloc removes all objects that are not allowed, and
 * fails if none is left. The sets are kept in the next level, which is unused at this point. */
static const char *check_allowed(struct cei_xml_tree *tree,
				 const struct cei_xml_element *element)
{
	const struct cei_xml_word *cpus = cei_xml_attribute(element, "allowed_cpuset");
	const struct cei_xml_word *nodes = cei_xml_attribute(element, "allowed_nodeset");
	struct level *level = &tree->levels[tree->depth];
	const char *why = NULL;

	tree->depth++;
	if (cpus)
		why = read_set(tree, cpus, CPUS);
	if (!why && nodes)
		why = read_set(tree, nodes, NODES);
	tree->depth--;
	if (why)
		return why;
	if ((cpus && !hwloc_bitmap_intersects(level[1].sets[CPUS], level->sets[CPUS])) ||
	    (nodes && !hwloc_bitmap_intersects(level[1].sets[NODES], level->sets[NODES])))
		return "a Machine none of which may be used";
	return NULL;
}

static const char *check_pu(struct cei_xml_tree *tree,
			    const struct cei_xml_element *element)
{
	struct level *level = &tree->levels[tree->depth];

	if (hwloc_bitmap_weight(level->sets[ALL_CPUS]) != 1 ||
	    hwloc_bitmap_first(level->sets[ALL_CPUS]) !=
	    number(cei_xml_attribute(element, "os_index")))
		return "a PU whose complete_cpuset is not its os_index";
	hwloc_bitmap_copy(level->below, level->sets[CPUS]);
	level->is_leaf = 1;
	tree->n_pus++;
	return NULL;
}

static const char *check_node(struct cei_xml_tree *tree,
			      const struct cei_xml_element *element)
{
	struct level *level = &tree->levels[tree->depth];

	if (hwloc_bitmap_weight(level->sets[ALL_NODES]) != 1 ||
	    hwloc_bitmap_first(level->sets[ALL_NODES]) !=
	    number(cei_xml_attribute(element, "os_index")))
		return "a NUMANode whose complete_nodeset is not its os_index";
	if (hwloc_bitmap_intersects(tree->nodes, level->sets[ALL_NODES]))
		return "a NUMANode that is there twice";
	hwloc_bitmap_or(tree->nodes, tree->nodes, level->sets[ALL_NODES]);
	if (hwloc_bitmap_iszero(level->sets[NODES]) &&
	    hwloc_bitmap_intersects(level->sets[ALL_NODES], level[-1].sets[NODES]))
		return "a NUMANode without the nodeset that its parent's grants";
	if (!is_size(cei_xml_attribute(element, "local_memory")))
		return "a NUMANode whose local_memory is no number of bytes, or beyond 1 PiB";
	level->is_leaf = 1;
	return NULL;
}

/* Checks that a cache's type fits its name: "L1Cache" to "L5Cache" are for data (1) or for data and
 * instructions (0), "L1iCache" to "L3iCache" for instructions (2). */
static const char *check_cache(const struct cei_xml_element *element,
			       const struct cei_xml_word *type)
{
	int64_t depth = number(cei_xml_attribute(element, "depth"));
	int64_t kind = number(cei_xml_attribute(element, "cache_type"));
	int is_ours = type->at[2] == 'i' ? kind == 2 : kind == 0 || kind == 1;

	if (depth != type->at[1] - '0' || !is_ours)
		return "a cache of another depth or kind than its type";
	if (!is_size(cei_xml_attribute(element, "cache_size")))
		return "a cache whose cache_size is no number of bytes, or beyond 1 PiB";
	return NULL;
}

/* Checks the position of memory without processors (CXL, a GPU's memory): hwloc wants it in a Group
 * of its own, behind all objects with processors. */
static const char *check_empty(struct cei_xml_tree *tree,
			       const struct cei_xml_element *element)
{
	struct level *level = &tree->levels[tree->depth];

	if (level[-1].sort != NORMAL || !cei_xml_is(&element->attributes[0].value, "Group") ||
	    hwloc_bitmap_iszero(level->sets[ALL_NODES]))
		return "an object without processors";
	level[-1].has_empty = 1;
	return NULL;
}

static const char *check_normal(struct cei_xml_tree *tree,
				const struct cei_xml_element *element)
{
	struct level *level = &tree->levels[tree->depth];
	const char *why = read_sets(tree, element);

	if (why)
		return why;
	if (hwloc_bitmap_iszero(level->sets[ALL_CPUS]))
		return check_empty(tree, element);
	if (level[-1].sort != NORMAL)
		return check_allowed(tree, element);
	if (level[-1].has_empty)
		return "an object with processors behind one without";
	if (hwloc_bitmap_intersects(level->sets[ALL_CPUS], level[-1].below))
		return "an object with another one's processors";
	/* cpuset must be complete_cpuset restricted to the parent's cpuset */
	hwloc_bitmap_and(level->below, level->sets[ALL_CPUS], level[-1].sets[CPUS]);
	if (!hwloc_bitmap_isequal(level->below, level->sets[CPUS]))
		return "an object with less in its cpuset than its parent's grants";
	hwloc_bitmap_zero(level->below);
	hwloc_bitmap_or(level[-1].below, level[-1].below, level->sets[ALL_CPUS]);
	return NULL;
}

/* Whether a word matches a pattern in which # is a hexadecimal digit; up to four further
 * digits may come first, for long PCI domains. */
static int is_like(const struct cei_xml_word *word, const char *pattern)
{
	uint64_t n = strlen(pattern);
	uint64_t i, more;

	if (word->n < n || word->n > n + 4)
		return 0;
	more = word->n - n;
	for (i = 0; i < word->n; i++)
		if (i < more || pattern[i - more] == '#' ?
		    !strchr("0123456789abcdefABCDEF", word->at[i]) :
		    pattern[i - more] != word->at[i])
			return 0;
	return 1;
}

/* Whether a word is a PCI address: a bus has 32 devices of 8 functions. */
static int is_address(const struct cei_xml_word *word)
{
	const char *end = word->at + word->n;

	return is_like(word, "####:##:##.#") && (end[-4] == '0' || end[-4] == '1') &&
	       end[-1] >= '0' && end[-1] <= '7';
}

/* hwloc drops I/O objects whose address it does not understand, and aborts at other faults. */
static const char *check_io(const struct cei_xml_element *element,
			    const struct cei_xml_word *type)
{
	const struct cei_xml_word *kind = cei_xml_attribute(element, "bridge_type");
	const struct cei_xml_word *bus_id = cei_xml_attribute(element, "pci_busid");
	const struct cei_xml_word *buses = cei_xml_attribute(element, "bridge_pci");
	int is_host = kind && cei_xml_is(kind, "0-1");

	if (cei_xml_is(type, "Bridge") && !is_host && !(kind && cei_xml_is(kind, "1-1")))
		return "a bridge whose bridge_type is neither 0-1 nor 1-1";
	if (!cei_xml_is(type, "OSDev") && !is_host && !(bus_id && is_address(bus_id)))
		return "a PCI device or bridge without a valid pci_busid";
	if (cei_xml_is(type, "Bridge") && !(buses && is_like(buses, "####:[##-##]")))
		return "a bridge without a valid bridge_pci";
	if (cei_xml_is(type, "OSDev") &&
	    (number(cei_xml_attribute(element, "osdev_type")) < 0 ||
	     number(cei_xml_attribute(element, "osdev_type")) > 1023))
		return "an OSDev without a valid osdev_type";
	return NULL;
}

/* Checks an object's gp_index, by which distances refer to objects. If it were missing, hwloc would
 * choose one, perhaps that of another object. */
static const char *check_index(struct cei_xml_tree *tree,
			       const struct cei_xml_element *element)
{
	int64_t index = number(cei_xml_attribute(element, "gp_index"));

	if (index < 1 || index >= INDEXES_MAX)
		return "an object without a valid gp_index";
	if (hwloc_bitmap_isset(tree->indexes, (unsigned int)index))
		return "a gp_index that is there twice";
	return hwloc_bitmap_set(tree->indexes, (unsigned int)index) ? "no memory" : NULL;
}

static int may_hold(const struct level *parent, enum sort sort)
{
	switch (sort) {
	case NORMAL:
		return parent->sort == TOPOLOGY || (parent->sort == NORMAL && !parent->is_leaf);
	case MEMORY:
		return (parent->sort == NORMAL || parent->sort == MEMORY) && !parent->is_leaf;
	case IO:
		return parent->sort == NORMAL || parent->sort == IO;
	default:
		return parent->sort != TOPOLOGY && parent->sort != NOTE;
	}
}

static const char *begin_object(struct cei_xml_tree *tree,
				const struct cei_xml_element *element)
{
	struct level *level = &tree->levels[tree->depth];
	const struct cei_xml_word *type = &element->attributes[0].value;
	const char *why;

	level[-1].has_objects = 1;
	if (++level[-1].n_children > CHILDREN_MAX)
		return "more objects than hwloc handles in one";
	if (!element->n_attributes || !cei_xml_is(&element->attributes[0].name, "type"))
		return "an object that does not begin with its type";
	level->sort = sort_of(type);
	if (level->sort == NOTHING)
		return "an object of unknown type";
	if (!may_hold(&level[-1], level->sort))
		return "an object where it cannot be";
	if ((level[-1].sort == TOPOLOGY) != cei_xml_is(type, "Machine"))
		return "a Machine within something, or something without a Machine";
	if (level[-1].sort == TOPOLOGY && tree->n_roots++)
		return "a second Machine";
	why = check_index(tree, element);
	if (why)
		return why;
	if ((level->sort == MISC || level->sort == IO) &&
	    (cei_xml_attribute(element, "cpuset") || cei_xml_attribute(element, "nodeset")))
		return "a device or note with processors or memory";
	if (level->sort == MISC)
		return NULL;
	if (level->sort == IO)
		return check_io(element, type);
	why = level->sort == NORMAL ? check_normal(tree, element) : read_sets(tree, element);
	level->has_pages = cei_xml_is(type, "NUMANode") || cei_xml_is(type, "Machine");
	if (!why && type->n > 5 && !memcmp(type->at + type->n - 5, "Cache", 5) &&
	    type->at[0] == 'L')
		why = check_cache(element, type);
	if (!why && cei_xml_is(type, "PU"))
		why = check_pu(tree, element);
	if (!why && cei_xml_is(type, "NUMANode"))
		why = check_node(tree, element);
	return why;
}

/* --- elements ------------------------------------------------------------------------- */

/* hwloc 1 and hwloc 3 write other formats, which are refused. */
static const char *begin_topology(const struct cei_xml_element *element)
{
	const struct cei_xml_word *version = cei_xml_attribute(element, "version");

	if (!version || version->n < 3 || memcmp(version->at, "2.", 2))
		return "not in the format of hwloc 2 (lstopo of hwloc 3: --export-xml-flags v2)";
	return NULL;
}

static int has_only(const struct cei_xml_element *element, const char *names)
{
	const struct cei_xml_word *name;
	const char *found;
	uint32_t i;

	for (i = 0; i < element->n_attributes; i++) {
		name = &element->attributes[i].name;
		found = memmem(names, strlen(names), name->at, name->n);
		if (!found || found[name->n] != ' ' || (found > names && found[-1] != ' '))
			return 0;
	}
	return 1;
}

static const char *begin_note(const struct level *level,
			      const struct cei_xml_element *element)
{
	const struct level *parent = level - 1;
	size_t i;

	if (parent->has_objects != (parent->sort == TOPOLOGY) && parent->sort != NOTE)
		return "an element before or after the objects that hwloc writes on the "
		       "other side of them";
	for (i = 0; i < sizeof(notes) / sizeof(notes[0]); i++) {
		if (!cei_xml_is(&level->name, notes[i].name) ||
		    !cei_xml_is(&parent->name, notes[i].within))
			continue;
		if (!parent->has_pages && cei_xml_is(&level->name, "page_type"))
			continue;
		return has_only(element, notes[i].attributes) ? NULL :
			"an attribute that hwloc does not write there";
	}
	return "an element that hwloc does not write there";
}

const char *cei_xml_tree_begin(struct cei_xml_tree *tree,
			       const struct cei_xml_element *element)
{
	struct level *level = &tree->levels[tree->depth];
	const char *why;

	if (!has_only_sets(element))
		return "a set that is none";
	level->name = element->name;
	level->sort = tree->depth ? NOTE : TOPOLOGY;
	level->is_leaf = 0;
	level->n_children = 0;
	level->has_empty = 0;
	level->has_pages = 0;
	level->has_objects = 0;
	if (!tree->depth)
		why = cei_xml_is(&element->name, "topology") ? begin_topology(element) :
			"the root element is not topology: not a file of hwloc";
	else if (cei_xml_is(&element->name, "object"))
		why = begin_object(tree, element);
	else
		why = begin_note(level, element);
	tree->depth++;
	return why;
}

const char *cei_xml_tree_end(struct cei_xml_tree *tree)
{
	struct level *level = &tree->levels[--tree->depth];

	if (level->sort == TOPOLOGY)
		return tree->n_roots ? NULL : "no Machine in it";
	if (level->sort != NORMAL)
		return NULL;
	if (!hwloc_bitmap_isincluded(level->sets[CPUS], level->below))
		return "an object with processors that no PU below it has";
	if (hwloc_bitmap_iszero(level->sets[ALL_CPUS]) &&
	    !hwloc_bitmap_isincluded(level->sets[ALL_NODES], tree->nodes))
		return "a Group without processors and without the NUMANodes of its nodeset";
	if (level[-1].sort != TOPOLOGY)
		return NULL;
	if (!tree->n_pus || hwloc_bitmap_iszero(level->sets[CPUS]))
		return "no processor in it";
	if (hwloc_bitmap_iszero(level->sets[NODES]) ||
	    !hwloc_bitmap_isincluded(level->sets[NODES], tree->nodes))
		return "a nodeset of NUMANodes that are not there";
	return NULL;
}
