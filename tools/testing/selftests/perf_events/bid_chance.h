/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Chance that repeats: xorshift64*, seeded by setting chance to anything but 0.
 */
#ifndef BID_CHANCE_H
#define BID_CHANCE_H

#include <linux/types.h>

static __u64 chance;

static inline __u64 any(void)
{
	chance ^= chance >> 12;
	chance ^= chance << 25;
	chance ^= chance >> 27;
	return chance * 0x2545f4914f6cdd1dULL;
}

static inline unsigned int below(unsigned int n)
{
	return (any() >> 32) % n;
}

#endif /* BID_CHANCE_H */
