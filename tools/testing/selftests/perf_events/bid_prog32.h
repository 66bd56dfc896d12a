/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What bid_prog32.c and bid_compat.c both know. Nothing is included: the program
 * has no C library.
 */
#ifndef BID_PROG32_H
#define BID_PROG32_H

#define STACK		0x20000000	/* one page; nothing is mapped around it */
#define PAGE		4096

/* Works on the stack, on its own if that is NULL; does not return. */
void work(int ready, void *stack);

#endif /* BID_PROG32_H */
