/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "topology/xml_scan.h"

#include <ceoverlap/ceoverlap.h>
#include <expat.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "topology/xml_tree.h"

#define MATRIX_OBJECTS_MAX 1024u
#define ATTRIBUTE_BYTES    65536u       /* the longest attributes are sets of processors */
#define NAME_BYTES_MAX     32u          /* of an attribute's name */

struct scan {
	XML_Parser   parser;
	const char  *text;              /* the whole text; it is ASCII, so expat's byte offsets
					 * are valid in it */
	uint32_t     n_elements;
	uint32_t     depth;
	struct cei_xml_word open[CEI_XML_DEPTH_MAX];    /* names of the open elements */
	uint64_t     words_begin;       /* offset of the text behind the matrix's opening tag */
	struct cei_xml_tree *tree;
	int          is_hetero;         /* whether the open matrix is of mixed types */
	uint64_t     n_objects;         /* as the matrix announces */
	uint64_t     n_indexes;         /* as counted in the matrix */
	uint64_t     n_values;          /* as counted in the matrix */
	int          is_refused;        /* 1: `fault` is set; expat may call once more before it
					 * stops */
	struct cei_xml_fault *fault;
};

static int fail(struct scan *scan, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Records a fault, unless one is recorded already, and stops the parser. */
static int fail(struct scan *scan, const char *format, ...)
{
	va_list list;

	if (scan->is_refused)
		return CEOV_ERR_INVALID;
	scan->is_refused = 1;
	scan->fault->line = (uint32_t)XML_GetCurrentLineNumber(scan->parser);
	va_start(list, format);
	vsnprintf(scan->fault->why, sizeof(scan->fault->why), format, list);
	va_end(list);
	/* The call fails if no callback is running, which does no harm. */
	(void)XML_StopParser(scan->parser, XML_FALSE);
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

static int is_name(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
		c == '-' || c == '.';
}

/* How many characters of a word to print in messages. */
static int shown(const struct cei_xml_word *word)
{
	return word->n < 24 ? (int)word->n : 24;
}

/* The text at which expat's current event begins. */
static const char *place_of(const struct scan *scan)
{
	return scan->text + XML_GetCurrentByteIndex(scan->parser);
}

/* The element name that begins at that position. hwloc's names have no colons. */
static struct cei_xml_word name_at(const char *at)
{
	struct cei_xml_word name = { at, 0 };

	while (is_name(at[name.n]))
		name.n++;
	return name;
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

/* Checks one word of a matrix: a number of up to 20 digits, or "PCIDev:20". */
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

static int is_words(const struct cei_xml_word *name)
{
	return cei_xml_is(name, "u64values") || cei_xml_is(name, "indexes");
}

/* Checks the words between a matrix's tags, in the file's text and not in what expat made of it. */
static int check_words(struct scan *scan, uint64_t *n_words)
{
	const char *at = scan->text + scan->words_begin, *end = place_of(scan);
	struct cei_xml_word word;
	int r = 0;

	while (!r) {
		while (at < end && is_space(*at))
			at++;
		if (at >= end)
			break;
		for (word.at = at; at < end && !is_space(*at);)
			at++;
		word.n = (uint64_t)(at - word.at);
		(*n_words)++;
		r = check_word(scan, &word);
	}
	return r;
}

static int begin_matrix(struct scan *scan, const struct cei_xml_element *element)
{
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

/* hwloc reads as many bytes as the tag announces, but not beyond the next tag. */
static int begin_words(struct scan *scan, const struct cei_xml_element *element)
{
	const struct cei_xml_word *length = cei_xml_attribute(element, "length");
	const char *begin = place_of(scan) + XML_GetCurrentByteCount(scan->parser);
	char number[24] = "0";

	scan->words_begin = (uint64_t)(begin - scan->text);
	if (begin[-2] != '/')           /* else the element was empty and has ended, too */
		snprintf(number, sizeof(number), "%zu", strcspn(begin, "<"));
	if (element->n_attributes != 1 || !length || !cei_xml_is(length, number))
		return fail(scan, "values of distances whose length is not %s", number);
	return 0;
}

/* --- elements ------------------------------------------------------------------------- */

/* hwloc's parser accepts attributes in one form only, and takes any other for the end of
 * the tag. */
static int is_plain_tag(const char *at, uint64_t n_bytes)
{
	const char *end = at + n_bytes;
	char quote = 0;

	for (; at < end; at++) {
		if (quote)
			quote = *at == quote ? 0 : quote;
		else if (*at == '=' && (is_space(at[-1]) || is_space(at[1])))
			return 0;
		else if (*at == '"' || *at == '\'')
			quote = *at;
	}
	return 1;
}

static int take_attribute(struct scan *scan, const char *const pair[2],
			  struct cei_xml_attribute *ret_attribute)
{
	ret_attribute->name = (struct cei_xml_word){ pair[0], strlen(pair[0]) };
	ret_attribute->value = (struct cei_xml_word){ pair[1], strlen(pair[1]) };
	if (ret_attribute->name.n >= NAME_BYTES_MAX ||
	    ret_attribute->name.n != name_at(pair[0]).n)
		return fail(scan, "an attribute whose name is too long, or has a colon");
	if (ret_attribute->value.n > ATTRIBUTE_BYTES)
		return fail(scan, "attribute %s of more than %u bytes", pair[0],
			    ATTRIBUTE_BYTES);
	return 0;
}

static int take_element(struct scan *scan, const char *const *pairs,
			struct cei_xml_element *ret_element)
{
	uint32_t n = 0;
	int r = 0;

	ret_element->name = name_at(place_of(scan) + 1);
	for (; *pairs && !r; pairs += 2) {
		if (n == CEI_XML_ATTRIBUTES_MAX)
			return fail(scan, "more than %u attributes", CEI_XML_ATTRIBUTES_MAX);
		r = take_attribute(scan, pairs, &ret_element->attributes[n++]);
	}
	ret_element->n_attributes = n;
	return r;
}

static int check_counts(struct scan *scan)
{
	if (scan->depth == CEI_XML_DEPTH_MAX)
		return fail(scan, "more than %u elements within each other",
			    CEI_XML_DEPTH_MAX);
	if (++scan->n_elements > CEI_XML_ELEMENTS_MAX)
		return fail(scan, "more than %u elements", CEI_XML_ELEMENTS_MAX);
	if (!is_plain_tag(place_of(scan), (uint64_t)XML_GetCurrentByteCount(scan->parser)))
		return fail(scan, "a blank beside the = of an attribute");
	return 0;
}

static void on_begin(void *scan_arg, const char *name, const char **pairs)
{
	struct scan *scan = scan_arg;
	struct cei_xml_element element;
	const char *why;

	if (scan->is_refused || check_counts(scan) || take_element(scan, pairs, &element))
		return;
	if (element.name.n != strlen(name)) {
		fail(scan, "an element whose name has a colon");
		return;
	}
	scan->open[scan->depth++] = element.name;
	why = cei_xml_tree_begin(scan->tree, &element);
	if (why)
		fail(scan, "%s", why);
	else if (is_matrix(&element.name))
		begin_matrix(scan, &element);
	else if (is_words(&element.name))
		begin_words(scan, &element);
}

static void on_end(void *scan_arg, const char *unused_name)
{
	struct scan *scan = scan_arg;
	const struct cei_xml_word *name;
	const char *why;

	(void)unused_name;
	if (scan->is_refused)
		return;
	name = &scan->open[--scan->depth];
	if (is_words(name) &&
	    check_words(scan, cei_xml_is(name, "indexes") ? &scan->n_indexes : &scan->n_values))
		return;
	why = cei_xml_tree_end(scan->tree);
	if (why)
		fail(scan, "%s", why);
	else if (is_matrix(name))
		check_matrix(scan);
}

static void on_text(void *scan_arg, const char *text, int n_bytes)
{
	struct scan *scan = scan_arg;
	const struct cei_xml_word *name;
	int i;

	if (!scan->depth)
		return;                 /* outside of text elements expat allows blanks only */
	name = &scan->open[scan->depth - 1];
	if (is_words(name) || cei_xml_is(name, "userdata"))
		return;
	/* hwloc would take a blank that is written as an entity for text */
	for (i = 0; i < n_bytes; i++)
		if (!is_space(text[i]) || *place_of(scan) == '&')
			fail(scan, "text where hwloc writes none");
}

/* --- declarations --------------------------------------------------------------------- */

static void refuse(struct scan *scan)
{
	fail(scan, "a declaration that hwloc does not write");
}

/* '<?xml version="1.0" encoding="UTF-8"?>' */
static void on_declaration(void *scan, const char *version, const char *encoding,
			   int standalone)
{
	if (!version || strcmp(version, "1.0") || (encoding && strcmp(encoding, "UTF-8")) ||
	    standalone != -1)
		refuse(scan);
}

/* '<!DOCTYPE topology SYSTEM "hwloc2.dtd">', a file that expat never reads. Declarations in
 * the text, of entities and of all else, are refused here, before the first one is read. */
static void on_document_type(void *scan, const char *name, const char *system,
			     const char *public, int has_declarations)
{
	if (strcmp(name, "topology") || !system || name_at(system).n != strlen(system) ||
	    public || has_declarations)
		refuse(scan);
}

static void on_instruction(void *scan, const char *target, const char *data)
{
	(void)target;
	(void)data;
	refuse(scan);
}

static void on_cdata(void *scan)
{
	refuse(scan);
}

/* --- the whole text ------------------------------------------------------------------- */

/* Whether an entity is predefined or a character number as hwloc writes it. After a
 * document type expat accepts undeclared entities, so they are refused here. */
static int is_known_entity(const char *at)
{
	static const char *const known[] = {
		"&lt;", "&gt;", "&amp;", "&quot;", "&apos;", "&#9;", "&#10;", "&#13;",
	};
	size_t i;

	for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strncmp(at, known[i], strlen(known[i])))
			return 1;
	return 0;
}

/* Refuses all bytes but ASCII, which is all that hwloc writes, and NULs within the text. */
static int check_bytes(struct scan *scan, uint64_t n_bytes)
{
	uint32_t line = 1;
	unsigned char c;
	uint64_t i;

	for (i = 0; i < n_bytes; i++) {
		c = (unsigned char)scan->text[i];
		line += c == '\n';
		if ((c < ' ' && !is_space((char)c)) || c > '~')
			fail(scan, "no text of hwloc's: a byte of value %u", c);
		else if (c == '&' && !is_known_entity(scan->text + i))
			fail(scan, "an entity that hwloc does not write");
		if (scan->is_refused) {
			scan->fault->line = line;       /* expat has not started, so it knows no
							 * line */
			return CEOV_ERR_INVALID;
		}
	}
	return 0;
}

static int fail_tag(struct scan *scan)
{
	struct cei_xml_word name = name_at(place_of(scan));
	const struct cei_xml_word *open = &scan->open[scan->depth - 1];

	return fail(scan, "</%.*s> where </%.*s> is expected", shown(&name), name.at,
		    shown(open), open->at);
}

/* Records expat's error in our own words if we have some for it, else in expat's. */
static int fail_parse(struct scan *scan)
{
	enum XML_Error error = XML_GetErrorCode(scan->parser);
	struct cei_xml_word name;

	switch (error) {
	case XML_ERROR_TAG_MISMATCH:
		return fail_tag(scan);
	case XML_ERROR_DUPLICATE_ATTRIBUTE:
		name = name_at(place_of(scan));
		return fail(scan, "attribute %.*s twice", shown(&name), name.at);
	case XML_ERROR_UNCLOSED_TOKEN:
		return fail(scan, "a tag without an end");
	case XML_ERROR_NO_ELEMENTS:
		if (scan->depth)
			return fail(scan, "<%.*s> has no end: the file is cut off",
				    shown(&scan->open[scan->depth - 1]),
				    scan->open[scan->depth - 1].at);
		return fail(scan, "no element in it");
	default:
		return fail(scan, "no XML: %s", XML_ErrorString(error));
	}
}

static int scan_all(struct scan *scan, uint64_t n_bytes)
{
	XML_SetUserData(scan->parser, scan);
	XML_SetElementHandler(scan->parser, on_begin, on_end);
	XML_SetCharacterDataHandler(scan->parser, on_text);
	XML_SetXmlDeclHandler(scan->parser, on_declaration);
	XML_SetStartDoctypeDeclHandler(scan->parser, on_document_type);
	XML_SetProcessingInstructionHandler(scan->parser, on_instruction);
	XML_SetStartCdataSectionHandler(scan->parser, on_cdata);
	if (check_bytes(scan, n_bytes))
		return CEOV_ERR_INVALID;
	/* in one call: given parts, expat would rescan a long tag from its begin each time */
	if (XML_Parse(scan->parser, scan->text, (int)n_bytes, 1) != XML_STATUS_OK)
		return fail_parse(scan);
	return scan->is_refused ? CEOV_ERR_INVALID : 0;
}

static int refuse_at_once(struct cei_xml_fault *fault, const char *why)
{
	fault->line = 1;
	snprintf(fault->why, sizeof(fault->why), "%s", why);
	return CEOV_ERR_INVALID;
}

int cei_xml_scan(const char *text, uint64_t n_bytes, struct cei_xml_fault *ret_fault)
{
	struct scan scan = { .text = text, .fault = ret_fault };
	int r;

	if (!n_bytes)
		return refuse_at_once(ret_fault, "it is empty");
	if (n_bytes > CEI_XML_BYTES_MAX)
		return refuse_at_once(ret_fault, "it is too large");
	scan.parser = XML_ParserCreate("UTF-8");
	scan.tree = cei_xml_tree_create();
	if (scan.parser && scan.tree)
		r = scan_all(&scan, n_bytes);
	else
		r = refuse_at_once(ret_fault, "no memory to check it");
	cei_xml_tree_destroy(scan.tree);
	if (scan.parser)
		XML_ParserFree(scan.parser);
	return r;
}
