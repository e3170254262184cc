/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef COMMON_PORT_H
#define COMMON_PORT_H

/* A TCP port of the loopback interface at which processes of this machine can meet. */

#define PORT_STORE_BYTES 24u            /* room for "127.0.0.1:65535" */

/* Reserves a port and writes its address, as CEOVERLAP_STORE has it. While the descriptor is open,
 * the kernel gives the port to nobody who asks for any, and the store of a group's process 0 can
 * listen there again and again, because both allow the address to be used by several sockets.
 * Returns the descriptor; -1, with errno. */
int port_reserve(char ret_store[PORT_STORE_BYTES]);

#endif /* COMMON_PORT_H */
