// SPDX-License-Identifier: GPL-2.0
/*
 * count.c: a plugin for QEMU, for bench-kernel.sh.
 *
 *   -plugin FILE,call=ADDRESS,row=ADDRESS,out=FILE
 *
 * Counts what guest/bench.c measures. That calls a function at `row` before and after
 * each figure, and one at `call` before and after each of the calls that the figure is
 * of. Both are at user addresses that no other program has code at.
 *
 * What is counted is what a processor retires. With -icount, the emulator, and with
 * it the guest's clock, takes each repetition of a `rep movsb` for an instruction,
 * which makes copying a kilobyte cost a thousand; a processor retires one. They are
 * told apart here: a repetition is a block of nothing but a string instruction, which
 * comes right after that same instruction. How many there were is said beside the
 * instructions, because copying is not for nothing either.
 *
 * Calls that an interrupt came into do not count: what the timer does on its occasion
 * is not part of them.
 *
 * Written are, for each figure, a line
 *     row CALLS INTERRUPTED INSTRUCTIONS REPETITIONS LEAST MOST EMULATED
 * (sums of the calls that count, the least and most that one of these has, and all
 * that the emulator executed in any call) and then, for each block that was executed
 * in calls that count,
 *     at ADDRESS INSTRUCTIONS REPETITIONS
 *
 * No package has the header that the emulator wants for this; what is used of it is
 * declared here. An emulator whose plugins are of another version than 7 says so, and
 * does not start.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

struct qemu_plugin_tb;
struct qemu_plugin_insn;

/* enum qemu_plugin_discon_type */
#define DISCON_INTERRUPT 1
#define DISCON_EXCEPTION 2

typedef void (*discon_fn)(unsigned int cpu, int type, uint64_t from, uint64_t to, void *arg);

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id,
					   void (*fn)(struct qemu_plugin_tb *tb, void *arg),
					   void *arg);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb,
					  void (*fn)(unsigned int cpu, void *arg),
					  int flags, void *arg);
void qemu_plugin_register_vcpu_discon_cb(uint64_t id, int type, discon_fn fn, void *arg);
void qemu_plugin_register_atexit_cb(uint64_t id, void (*fn)(void *arg), void *arg);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t i);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *to, size_t size);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);

EXPORT int qemu_plugin_version = 7;

struct counts {
	uint64_t	instructions, repetitions;
};

struct block {
	uint64_t	address;
	size_t		instructions;
	uint64_t	string;		/* the string instruction at its end; 0: none */
	struct counts	now;		/* in this call */
	struct counts	row;		/* in calls of this figure that count */
	struct block	*next_now, *next_row;
	bool		in_now, in_row;
};

static struct {
	bool		inside;		/* of a call */
	bool		interrupted;
	struct counts	sum;
	struct block	*blocks;
} now;

static struct {
	uint64_t	calls, interrupted, least, most, emulated;
	struct counts	sum;
	struct block	*blocks;
} row;

static uint64_t call_at, row_at;
static FILE *out;

static void end_call(void)
{
	bool counts = now.inside && !now.interrupted;

	for (struct block *b = now.blocks; b; b = b->next_now) {
		if (counts) {
			b->row.instructions += b->now.instructions;
			b->row.repetitions += b->now.repetitions;
			if (!b->in_row) {
				b->next_row = row.blocks;
				row.blocks = b;
				b->in_row = true;
			}
		}
		b->now = (struct counts){};
		b->in_now = false;
	}
	row.emulated += now.sum.instructions + now.sum.repetitions;
	if (counts) {
		row.calls++;
		row.sum.instructions += now.sum.instructions;
		row.sum.repetitions += now.sum.repetitions;
		if (row.calls == 1 || now.sum.instructions < row.least)
			row.least = now.sum.instructions;
		if (now.sum.instructions > row.most)
			row.most = now.sum.instructions;
	} else if (now.inside) {
		row.interrupted++;
	}
	memset(&now, 0, sizeof(now));
}

static void end_row(void)
{
	if (row.calls || row.interrupted)
		fprintf(out, "row %lu %lu %lu %lu %lu %lu %lu\n", row.calls, row.interrupted,
			row.sum.instructions, row.sum.repetitions, row.least, row.most,
			row.emulated);
	for (struct block *b = row.blocks; b; b = b->next_row) {
		fprintf(out, "at %lx %lu %lu\n", b->address, b->row.instructions,
			b->row.repetitions);
		b->row = (struct counts){};
		b->in_row = false;
	}
	memset(&row, 0, sizeof(row));
}

static void executed(unsigned int cpu, void *arg)
{
	static uint64_t string;		/* that was executed last */
	struct block *b = arg;
	bool again = b->instructions == 1 && b->string && b->string == string;
	size_t instructions = again ? 0 : b->instructions;

	(void)cpu;
	string = b->string;
	if (b->address == call_at) {
		end_call();
		now.inside = true;
	} else if (b->address == row_at) {
		/* what comes after the last call is of none */
		now.inside = false;
		end_call();
		end_row();
	}
	if (!now.inside)
		return;
	b->now.instructions += instructions;
	b->now.repetitions += again;
	now.sum.instructions += instructions;
	now.sum.repetitions += again;
	if (!b->in_now) {
		b->next_now = now.blocks;
		now.blocks = b;
		b->in_now = true;
	}
}

/* That an exception is delivered, is reported as an interrupt, too, right after it. */
static void interrupted(unsigned int cpu, int type, uint64_t from, uint64_t to, void *arg)
{
	static bool exception;

	(void)cpu, (void)from, (void)to, (void)arg;
	if (type == DISCON_INTERRUPT && !exception)
		now.interrupted = true;
	exception = type == DISCON_EXCEPTION;
}

/* INS, MOVS, CMPS, STOS, LODS or SCAS with a REP prefix */
static bool repeats(const struct qemu_plugin_insn *insn)
{
	unsigned char bytes[16];
	size_t size = qemu_plugin_insn_data(insn, bytes, sizeof(bytes));
	bool rep = false;

	for (size_t i = 0; i < size; i++) {
		switch (bytes[i]) {
		case 0xf2: case 0xf3:
			rep = true;
			break;
		case 0x66: case 0x67: case 0x26: case 0x2e: case 0x36: case 0x3e:
		case 0x64: case 0x65: case 0x40 ... 0x4f:
			break;
		case 0x6c ... 0x6f: case 0xa4 ... 0xa7: case 0xaa ... 0xaf:
			return rep;
		default:
			return false;
		}
	}
	return false;
}

static void translated(struct qemu_plugin_tb *tb, void *arg)
{
	struct block *b = calloc(1, sizeof(*b));
	struct qemu_plugin_insn *last;

	(void)arg;
	if (!b)
		abort();
	b->address = qemu_plugin_tb_vaddr(tb);
	b->instructions = qemu_plugin_tb_n_insns(tb);
	last = qemu_plugin_tb_get_insn(tb, b->instructions - 1);
	b->string = repeats(last) ? qemu_plugin_insn_vaddr(last) : 0;
	qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, 0, b);
}

static void ended(void *arg)
{
	(void)arg;
	/* what is missing in the file is missed by who reads it */
	if (fclose(out))
		perror("count.c");
}

EXPORT int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv)
{
	(void)info;
	for (int i = 0; i < argc; i++) {
		if (!strncmp(argv[i], "call=", 5))
			call_at = strtoull(argv[i] + 5, NULL, 16);
		if (!strncmp(argv[i], "row=", 4))
			row_at = strtoull(argv[i] + 4, NULL, 16);
		if (!strncmp(argv[i], "out=", 4))
			out = fopen(argv[i] + 4, "w");
	}
	if (!call_at || !row_at || !out)
		return -1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated, NULL);
	qemu_plugin_register_vcpu_discon_cb(id, DISCON_INTERRUPT | DISCON_EXCEPTION, interrupted,
					    NULL);
	qemu_plugin_register_atexit_cb(id, ended, NULL);
	return 0;
}
