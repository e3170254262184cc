/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "topology/xml_scan.h"

#include <ceoverlap/ceoverlap.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "topology/xml_tree.h"

#define MATRIX_OBJECTS_MAX 1024u
#define ATTRIBUTE_BYTES    65536u       /* the longest are sets of processors */

struct scan {
	const char  *begin;
	const char  *at;
	const char  *end;
	uint32_t     depth;
	uint32_t     n_elements;
	int          has_type;          /* a document type */
	struct cei_xml_word open[CEI_XML_DEPTH_MAX];
	struct cei_xml_tree *tree;
	struct cei_xml_element element;         /* whose tag is being read */
	int          is_hetero;         /* the matrix that is open */
	uint64_t     n_objects;         /* announced by it */
	uint64_t     n_indexes;         /* seen in it */
	uint64_t     n_values;
	struct cei_xml_fault *fault;
};

static int fail(struct scan *scan, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static int fail(struct scan *scan, const char *format, ...)
{
	const char *at;
	va_list list;

	scan->fault->line = 1;
	for (at = scan->begin; at < scan->at && at < scan->end; at++)
		scan->fault->line += *at == '\n';
	va_start(list, format);
	vsnprintf(scan->fault->why, sizeof(scan->fault->why), format, list);
	va_end(list);
	return CEOV_ERR_INVALID;
}

static int is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static int is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static int is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static int is_name(char c)
{
	return is_letter(c) || is_digit(c) || c == '-' || c == '.';
}

static void skip_space(struct scan *scan)
{
	while (scan->at < scan->end && is_space(*scan->at))
		scan->at++;
}

static int starts(const struct scan *scan, const char *text)
{
	uint64_t n = strlen(text);

	return (uint64_t)(scan->end - scan->at) >= n && !memcmp(scan->at, text, n);
}

/* For messages; no name is that long. */
static int shown(const struct cei_xml_word *word)
{
	return word->n < 24 ? (int)word->n : 24;
}

static int read_name(struct scan *scan, struct cei_xml_word *ret_name)
{
	ret_name->at = scan->at;
	if (scan->at < scan->end && !is_letter(*scan->at))
		return fail(scan, "a name is expected");
	while (scan->at < scan->end && is_name(*scan->at))
		scan->at++;
	ret_name->n = (uint64_t)(scan->at - ret_name->at);
	return ret_name->n ? 0 : fail(scan, "a name is expected");
}

/* "&lt;" and the like, and what hwloc writes by number. */
static int read_entity(struct scan *scan)
{
	static const char *const known[] = {
		"&lt;", "&gt;", "&amp;", "&quot;", "&apos;", "&#9;", "&#10;", "&#13;",
	};
	size_t i;

	for (i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (starts(scan, known[i])) {
			scan->at += strlen(known[i]);
			return 0;
		}
	}
	return fail(scan, "an entity that hwloc does not write");
}

/* --- matrices ------------------------------------------------------------------------- */

static int is_matrix(const struct cei_xml_word *name)
{
	return cei_xml_is(name, "distances2") || cei_xml_is(name, "distances2hetero");
}

static int read_count(struct scan *scan, const struct cei_xml_word *value, uint64_t *ret_count)
{
	uint64_t i, count = 0;

	for (i = 0; i < value->n && count <= MATRIX_OBJECTS_MAX; i++) {
		if (!is_digit(value->at[i]))
			return fail(scan, "nbobjs is no number");
		count = count * 10 + (uint64_t)(value->at[i] - '0');
	}
	if (!count || count > MATRIX_OBJECTS_MAX)
		return fail(scan, "nbobjs is not 1 to %u", MATRIX_OBJECTS_MAX);
	*ret_count = count;
	return 0;
}

static int check_matrix(struct scan *scan)
{
	if (scan->n_indexes != scan->n_objects)
		return fail(scan, "distances of %llu objects name %llu",
			    (unsigned long long)scan->n_objects,
			    (unsigned long long)scan->n_indexes);
	if (scan->n_values != scan->n_objects * scan->n_objects)
		return fail(scan, "distances of %llu objects hold %llu values",
			    (unsigned long long)scan->n_objects,
			    (unsigned long long)scan->n_values);
	return 0;
}

/* One word of a matrix: a number of up to 20 digits, or "PCIDev:20". */
static int check_word(struct scan *scan, const struct cei_xml_word *word)
{
	const char *colon = memchr(word->at, ':', word->n);
	struct cei_xml_word type = { word->at, 0 };
	uint64_t i = 0;

	if (colon) {
		type.n = (uint64_t)(colon - word->at);
		i = type.n + 1;
		if (!scan->is_hetero || !cei_xml_is_type(&type))
			return fail(scan, "an index of distances of no type of object");
	}
	if (i == word->n || word->n - i > 20)
		return fail(scan, "a value of distances is no number");
	for (; i < word->n; i++)
		if (!is_digit(word->at[i]))
			return fail(scan, "a value of distances is no number");
	return 0;
}

/* The words between a matrix's tags, which tell how long they are. */
static int read_words(struct scan *scan, uint64_t *n_words)
{
	const struct cei_xml_word *length = cei_xml_attribute(&scan->element, "length");
	const char *begin = scan->at;
	struct cei_xml_word word;
	char text[24];
	int r = 0;

	for (skip_space(scan); scan->at < scan->end && *scan->at != '<' && !r;
	     skip_space(scan)) {
		word.at = scan->at;
		while (scan->at < scan->end && !is_space(*scan->at) && *scan->at != '<')
			scan->at++;
		word.n = (uint64_t)(scan->at - word.at);
		(*n_words)++;
		r = check_word(scan, &word);
	}
	if (r)
		return r;
	snprintf(text, sizeof(text), "%llu", (unsigned long long)(scan->at - begin));
	if (scan->element.n_attributes != 1 || !length || !cei_xml_is(length, text))
		return fail(scan, "values of distances whose length is not %s", text);
	return 0;
}

static int begin_matrix(struct scan *scan)
{
	const struct cei_xml_element *element = &scan->element;
	const struct cei_xml_word *type = cei_xml_attribute(element, "type");
	const struct cei_xml_word *indexing = cei_xml_attribute(element, "indexing");
	const struct cei_xml_word *kind = cei_xml_attribute(element, "kind");
	const struct cei_xml_word *count = cei_xml_attribute(element, "nbobjs");

	scan->is_hetero = cei_xml_is(&element->name, "distances2hetero");
	scan->n_indexes = scan->n_values = 0;
	if (!scan->is_hetero && (!type || !cei_xml_is_type(type)))
		return fail(scan, "distances of no type of object");
	if (!scan->is_hetero &&
	    (!indexing || (!cei_xml_is(indexing, "os") && !cei_xml_is(indexing, "gp"))))
		return fail(scan, "distances whose indexing is neither os nor gp");
	if (!kind || !kind->n || kind->n > 4 || kind->at[0] < '1' || kind->at[0] > '9')
		return fail(scan, "distances of no kind");
	if (!count)
		return fail(scan, "distances without nbobjs");
	return read_count(scan, count, &scan->n_objects);
}

/* --- elements ------------------------------------------------------------------------- */

/* A value and the quote behind it; at stands behind the one before it. */
static int read_value(struct scan *scan, char quote, struct cei_xml_word *ret_value)
{
	int r = 0;

	ret_value->at = scan->at;
	while (scan->at < scan->end && *scan->at != quote && !r) {
		if (*scan->at == '<')
			return fail(scan, "a value holds a <");
		if (*scan->at == '&')
			r = read_entity(scan);
		else
			scan->at++;
	}
	if (r)
		return r;
	ret_value->n = (uint64_t)(scan->at - ret_value->at);
	if (scan->at == scan->end || ret_value->n > ATTRIBUTE_BYTES)
		return fail(scan, "a value without an end");
	scan->at++;
	return 0;
}

static int read_attribute(struct scan *scan)
{
	struct cei_xml_element *element = &scan->element;
	struct cei_xml_attribute *attribute = &element->attributes[element->n_attributes];
	char name[32];
	int r;

	if (element->n_attributes == CEI_XML_ATTRIBUTES_MAX)
		return fail(scan, "more than %u attributes", CEI_XML_ATTRIBUTES_MAX);
	r = read_name(scan, &attribute->name);
	if (r)
		return r;
	if (attribute->name.n >= sizeof(name))
		return fail(scan, "an attribute whose name is too long");
	memcpy(name, attribute->name.at, attribute->name.n);
	name[attribute->name.n] = '\0';
	if (cei_xml_attribute(element, name))
		return fail(scan, "attribute %s twice", name);
	if (scan->end - scan->at < 2 || *scan->at != '=' ||
	    (scan->at[1] != '"' && scan->at[1] != '\''))
		return fail(scan, "attribute %s has no quoted value", name);
	scan->at += 2;
	r = read_value(scan, scan->at[-1], &attribute->value);
	if (r)
		return r;
	element->n_attributes++;
	return 0;
}

static int begin_element(struct scan *scan, const struct cei_xml_word *name)
{
	if (scan->depth == CEI_XML_DEPTH_MAX)
		return fail(scan, "more than %u elements within each other",
			    CEI_XML_DEPTH_MAX);
	if (++scan->n_elements > CEI_XML_ELEMENTS_MAX)
		return fail(scan, "more than %u elements", CEI_XML_ELEMENTS_MAX);
	if (!scan->depth && scan->n_elements > 1)
		return fail(scan, "a second root element");
	scan->open[scan->depth++] = *name;
	return 0;
}

static int end_element(struct scan *scan)
{
	const struct cei_xml_word *name = &scan->open[--scan->depth];
	const char *why = cei_xml_tree_end(scan->tree);

	if (why)
		return fail(scan, "%s", why);
	return is_matrix(name) ? check_matrix(scan) : 0;
}

/* at stands behind "</" */
static int read_end_tag(struct scan *scan)
{
	const struct cei_xml_word *open;
	struct cei_xml_word name;
	int r = read_name(scan, &name);

	if (r)
		return r;
	if (!scan->depth)
		return fail(scan, "</%.*s> ends nothing", shown(&name), name.at);
	open = &scan->open[scan->depth - 1];
	if (open->n != name.n || memcmp(open->at, name.at, name.n))
		return fail(scan, "</%.*s> where </%.*s> is expected", shown(&name), name.at,
			    shown(open), open->at);
	skip_space(scan);
	if (scan->at == scan->end || *scan->at != '>')
		return fail(scan, "</%.*s without its >", shown(&name), name.at);
	scan->at++;
	return end_element(scan);
}

/* The attributes of a tag, and whether it ends its element at once. */
static int read_attributes(struct scan *scan, int *ret_is_end)
{
	const char *begin = scan->at;
	int r = 0;

	while (!r) {
		skip_space(scan);
		*ret_is_end = starts(scan, "/>");
		if (*ret_is_end || starts(scan, ">"))
			break;
		if (scan->at == scan->end) {
			scan->at = begin;
			return fail(scan, "a tag without an end");
		}
		r = is_space(scan->at[-1]) ? read_attribute(scan) :
			fail(scan, "no space before an attribute");
	}
	return r;
}

/* at stands behind "<" */
static int read_tag(struct scan *scan)
{
	struct cei_xml_element *element = &scan->element;
	const char *why;
	int is_end = 0;
	int r;

	element->n_attributes = 0;
	r = read_name(scan, &element->name);
	if (!r)
		r = begin_element(scan, &element->name);
	if (!r)
		r = read_attributes(scan, &is_end);
	if (r)
		return r;
	why = cei_xml_tree_begin(scan->tree, element);
	if (why)
		return fail(scan, "%s", why);
	if (is_matrix(&element->name))
		r = begin_matrix(scan);
	scan->at += is_end ? 2 : 1;
	if (r)
		return r;
	if (is_end)
		return end_element(scan);
	if (cei_xml_is(&element->name, "u64values"))
		return read_words(scan, &scan->n_values);
	return cei_xml_is(&element->name, "indexes") ? read_words(scan, &scan->n_indexes) : 0;
}

/* '<?xml version="1.0" encoding="UTF-8"?>' */
static int read_declaration(struct scan *scan)
{
	static const char *const known[] = {
		"<?xml version=\"1.0\" encoding=\"UTF-8\"?>", "<?xml version=\"1.0\"?>",
	};
	size_t i;

	for (i = 0; i < sizeof(known) / sizeof(known[0]) && scan->at == scan->begin; i++) {
		if (starts(scan, known[i])) {
			scan->at += strlen(known[i]);
			return 0;
		}
	}
	return fail(scan, "a declaration that hwloc does not write");
}

/* '<!DOCTYPE topology SYSTEM "hwloc2.dtd">' */
static int read_document_type(struct scan *scan)
{
	static const char begin[] = "<!DOCTYPE topology SYSTEM \"";
	const char *at = scan->at + strlen(begin);

	if (scan->n_elements || scan->has_type || !starts(scan, begin))
		return fail(scan, "a declaration that hwloc does not write");
	while (at < scan->end && is_name(*at))
		at++;
	if (scan->end - at < 2 || at[0] != '"' || at[1] != '>')
		return fail(scan, "a document type that hwloc does not write");
	scan->has_type = 1;
	scan->at = at + 2;
	return 0;
}

static int read_comment(struct scan *scan)
{
	const char *begin = scan->at;

	scan->at += strlen("<!--");
	scan->at = memmem(scan->at, (size_t)(scan->end - scan->at), "--", 2);
	if (scan->at && starts(scan, "-->")) {
		scan->at += strlen("-->");
		return 0;
	}
	scan->at = begin;
	return fail(scan, "a comment without an end, or with a -- in it");
}

/* at stands on "<" */
static int read_markup(struct scan *scan)
{
	if (starts(scan, "<?"))
		return read_declaration(scan);
	if (starts(scan, "<!--"))
		return read_comment(scan);
	if (starts(scan, "<!"))
		return read_document_type(scan);
	scan->at++;
	if (scan->at < scan->end && *scan->at == '/') {
		scan->at++;
		return read_end_tag(scan);
	}
	return read_tag(scan);
}

static int read_text(struct scan *scan)
{
	unsigned char c = (unsigned char)*scan->at;

	if (!is_space((char)c) && !scan->n_elements)
		return fail(scan, "no XML: text where the first element should be");
	if (!is_space((char)c) &&
	    (!scan->depth || !cei_xml_is(&scan->open[scan->depth - 1], "userdata")))
		return fail(scan, "text where hwloc writes none");
	if (c == '&')
		return read_entity(scan);
	scan->at++;
	return 0;
}

/* hwloc writes nothing but ASCII; then what C sees as text is all of it. */
static int check_bytes(struct scan *scan)
{
	unsigned char c;

	for (; scan->at < scan->end; scan->at++) {
		c = (unsigned char)*scan->at;
		if ((c < ' ' && !is_space((char)c)) || c > '~')
			return fail(scan, "no text of hwloc's: a byte of value %u", c);
	}
	return 0;
}

static int scan_all(struct scan *scan)
{
	int r = check_bytes(scan);

	scan->at = scan->begin;
	while (!r && scan->at < scan->end)
		r = *scan->at == '<' ? read_markup(scan) : read_text(scan);
	if (r)
		return r;
	if (scan->depth)
		return fail(scan, "<%.*s> has no end: the file is cut off",
			    shown(&scan->open[scan->depth - 1]),
			    scan->open[scan->depth - 1].at);
	return scan->n_elements ? 0 : fail(scan, "no element in it");
}

int cei_xml_scan(const char *text, uint64_t n_bytes, struct cei_xml_fault *ret_fault)
{
	struct scan scan = { .begin = text, .at = text, .end = text + n_bytes,
			     .fault = ret_fault };
	int r;

	if (!n_bytes)
		return fail(&scan, "it is empty");
	if (n_bytes > CEI_XML_BYTES_MAX)
		return fail(&scan, "more than %u MiB", (unsigned int)(CEI_XML_BYTES_MAX >> 20));
	scan.tree = cei_xml_tree_create();
	if (!scan.tree)
		return fail(&scan, "no memory to check it");
	r = scan_all(&scan);
	cei_xml_tree_destroy(scan.tree);
	return r;
}
