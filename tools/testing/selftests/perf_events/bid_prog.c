// SPDX-License-Identifier: GPL-2.0
/*
 * bid_prog READY_FD [NEXT]: says on READY_FD that it runs, then spins in a few
 * nested calls until it is killed. On SIGUSR1 it becomes NEXT instead. With the
 * word "end" in place of READY_FD it ends at once. Linked several times over with
 * different build IDs and segments.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#ifndef BID_FAR
#define BID_FAR
#endif

static unsigned long calls;
static int become_next;

static void on_usr1(int sig)
{
	(void)sig;
	__atomic_store_n(&become_next, 1, __ATOMIC_RELAXED);
}

static void spin(void)
{
	for (int i = 0; i < 100000; i++)
		__asm__ volatile("");
}

/* In a segment of its own if the Makefile says so. */
BID_FAR static void far_spin(void)
{
	for (int i = 0; i < 100000; i++)
		__asm__ volatile("");
	calls++;
}

static void near_spin(void)
{
	spin();
	far_spin();
	calls++;
}

int main(int argc, char **argv)
{
	int ready = argc > 1 ? atoi(argv[1]) : -1;
	char *next[3] = { argv[0], argc > 1 ? argv[1] : NULL, NULL };

	if (argc > 1 && !strcmp(argv[1], "end"))
		return 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGUSR1, on_usr1);
	if (ready >= 0 && write(ready, "", 1) != 1)
		return 1;
	while (!__atomic_load_n(&become_next, __ATOMIC_RELAXED))
		near_spin();
	if (argc > 2)
		execv(argv[2], next);
	return 2;
}
