// SPDX-License-Identifier: GPL-2.0
/*
 * A library to dlopen(), and code to copy. The Makefile aligns its functions so
 * that bid_lib_spin() has a page to itself, and all it touches is its argument:
 * a copy of the page runs anywhere.
 */
#include "bid_common.h"

void bid_lib_spin(unsigned long n)
{
	for (; n; n--)
		__asm__ volatile("");
}

/* A frame in the middle of a callchain. */
void bid_lib_call(void (*fn)(void *arg), void *arg)
{
	fn(arg);
	__asm__ volatile("" : : : "memory");
}
