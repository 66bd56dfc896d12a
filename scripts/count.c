// SPDX-License-Identifier: GPL-2.0
/*
 * count.c: a plugin for QEMU, for bench-kernel.sh.
 *
 *   -plugin FILE,toggle=ADDRESS,out=FILE
 *
 * Counts the instructions that are executed, by the address of the block they are
 * in, from the first time that the one at ADDRESS is, to the second, and so on.
 * Writes an address and a number a line when the emulator ends.
 *
 * No package has the header that the emulator (11, plugins of version 7) wants
 * for this; what is used of it is declared here.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct qemu_plugin_tb;

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id,
					   void (*fn)(struct qemu_plugin_tb *tb, void *arg),
					   void *arg);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb,
					  void (*fn)(unsigned int cpu, void *arg),
					  int flags, void *arg);
void qemu_plugin_register_atexit_cb(uint64_t id, void (*fn)(void *arg), void *arg);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);

__attribute__((visibility("default"))) int qemu_plugin_version = 7;

struct block {
	struct block	*next;
	uint64_t	address, executed;
	size_t		instructions;
};

static struct block *blocks;
static uint64_t toggle;
static const char *out;
static bool on;

static void executed(unsigned int cpu, void *arg)
{
	struct block *block = arg;

	(void)cpu;
	if (block->address == toggle)
		on = !on;
	block->executed += on;
}

static void translated(struct qemu_plugin_tb *tb, void *arg)
{
	struct block *block = calloc(1, sizeof(*block));

	(void)arg;
	if (!block)
		abort();
	block->address = qemu_plugin_tb_vaddr(tb);
	block->instructions = qemu_plugin_tb_n_insns(tb);
	block->next = blocks;
	blocks = block;
	qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, 0, block);
}

static void ended(void *arg)
{
	FILE *f = fopen(out, "w");

	(void)arg;
	for (struct block *block = blocks; f && block; block = block->next)
		if (block->executed)
			fprintf(f, "%lx %lu\n", (unsigned long)block->address,
				(unsigned long)(block->executed * block->instructions));
	if (!f || fclose(f))
		perror(out);
}

__attribute__((visibility("default")))
int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv)
{
	(void)info;
	for (int i = 0; i < argc; i++) {
		if (!strncmp(argv[i], "toggle=", 7))
			toggle = strtoull(argv[i] + 7, NULL, 16);
		if (!strncmp(argv[i], "out=", 4))
			out = argv[i] + 4;
	}
	if (!toggle || !out)
		return -1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated, NULL);
	qemu_plugin_register_atexit_cb(id, ended, NULL);
	return 0;
}
