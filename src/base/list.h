/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_LIST_H
#define CEI_LIST_H

/*
 * An intrusive, circular, doubly linked list. The head is a node without an object; a node that is
 * in no list points at itself. Callers serialise calls on one list.
 */

#include <stddef.h>

struct cei_list {
	struct cei_list *next;
	struct cei_list *previous;
};

/* Returns the object of the given type whose field `member` is `node`. */
#define CEI_OWNER(node, type, member) \
	((type *)(void *)((char *)(node) - offsetof(type, member)))

static inline void cei_list_init(struct cei_list *node)
{
	node->next = node;
	node->previous = node;
}

static inline int cei_list_is_empty(const struct cei_list *head)
{
	return head->next == head;
}

static inline void cei_list_append(struct cei_list *head, struct cei_list *node)
{
	node->previous = head->previous;
	node->next = head;
	head->previous->next = node;
	head->previous = node;
}

static inline void cei_list_remove(struct cei_list *node)
{
	node->previous->next = node->next;
	node->next->previous = node->previous;
	cei_list_init(node);
}

/* Removes the first node from the list and returns it; NULL: the list is empty. */
static inline struct cei_list *cei_list_take(struct cei_list *head)
{
	struct cei_list *node = head->next;

	if (node == head)
		return NULL;
	cei_list_remove(node);
	return node;
}

#endif /* CEI_LIST_H */
