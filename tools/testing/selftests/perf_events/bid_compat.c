// SPDX-License-Identifier: GPL-2.0
/*
 * Callchains of a 32-bit program on a 64-bit kernel, whose frames have half the
 * size: those of its own calls, and those of stacks that were made up. The program
 * is bid_prog32; what its callchains are to be is read from its ELF file.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kselftest_harness.h"
#include "bid_common.h"
#include "bid_prog32.h"

#ifdef __x86_64__

#define ALL_FOUR	(BID_BITS | PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN)
#define STACK_USER	64	/* bytes of it, in samples */
#define WANT		40
#define DEPTH		20

static struct bid_maps maps;

/* The program's file */

struct image {
	const __u8	*data;
	int		id_size;
	__u8		id[BID_SIZE_MAX];
};

/* Addresses of code, the last one included. */
struct range {
	__u64	first, last;
};

static int image_open(struct image *im, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	const Elf32_Ehdr *eh;
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return bid_fail("%s: %s", path, strerror(errno));
	eh = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (eh == MAP_FAILED)
		return bid_fail("mmap of %s: %s", path, strerror(errno));
	im->data = (const __u8 *)eh;
	im->id_size = bid_image_build_id(eh, st.st_size, im->id);
	if (eh->e_ident[EI_CLASS] != ELFCLASS32 || im->id_size <= 0)
		return bid_fail("%s: class %u, ID of %d bytes", path, eh->e_ident[EI_CLASS],
				im->id_size);
	return 0;
}

static int image_function(const struct image *im, const char *name, struct range *r)
{
	const Elf32_Ehdr *eh = (const void *)im->data;
	const Elf32_Shdr *sh = (const void *)(im->data + eh->e_shoff);

	for (int i = 0; i < eh->e_shnum; i++) {
		const Elf32_Sym *sym = (const void *)(im->data + sh[i].sh_offset);
		const char *names = (const char *)im->data + sh[sh[i].sh_link].sh_offset;

		if (sh[i].sh_type != SHT_SYMTAB)
			continue;
		for (size_t k = 0; k < sh[i].sh_size / sizeof(*sym); k++) {
			if (strcmp(names + sym[k].st_name, name) || !sym[k].st_size)
				continue;
			r->first = sym[k].st_value;
			r->last = r->first + sym[k].st_size - 1;
			return 0;
		}
	}
	return bid_fail("the program has no %s()", name);
}

/* 0 if no segment has it: that is where the ELF header is. */
static __u64 image_offset(const struct image *im, __u64 addr)
{
	const Elf32_Ehdr *eh = (const void *)im->data;
	const Elf32_Phdr *ph = (const void *)(im->data + eh->e_phoff);

	for (int i = 0; i < eh->e_phnum; i++)
		if (ph[i].p_type == PT_LOAD && ph[i].p_flags & PF_X &&
		    addr >= ph[i].p_vaddr && addr - ph[i].p_vaddr < ph[i].p_filesz)
			return ph[i].p_offset + addr - ph[i].p_vaddr;
	return 0;
}

/* The stack */

struct frame32 {
	__u32	next, ret;
};

/* A task that runs the program, and how it is sampled. */
struct watch {
	struct perf_event_attr attr;
	struct image image;
	struct bid_child child;
	struct bid_event e;
	struct bid_tool t;

	struct range frames[DEPTH + 4];	/* innermost first */
	size_t nr;			/* ... that a callchain is to have */
	unsigned long resolved;		/* callchains */
};

FIXTURE(compat)
{
	struct watch w;
};

/*
 * Either the frames of DEPTH calls or two that were made up, the second of which
 * need not be where the first says that the next one is. The walk in the sample
 * follows a chain wherever it goes; the deferred unwinder, which knows no
 * max_stack, ends it where a frame is not aligned or not above the last one.
 */
FIXTURE_VARIANT(compat)
{
	bool made_up;
	__u32 next;		/* of the first frame */
	__u32 second;		/* its place on the stack */
	__u32 second_next;
	__u32 max_stack;
	size_t nr;		/* frames, work_loop()'s among them */
	size_t nr_deferred;
};

FIXTURE_VARIANT_ADD(compat, real) {
	.nr = DEPTH + 4, .nr_deferred = DEPTH + 4,
};

FIXTURE_VARIANT_ADD(compat, real_cut) {
	.max_stack = 5, .nr = 5, .nr_deferred = DEPTH + 4,
};

FIXTURE_VARIANT_ADD(compat, end) {
	.made_up = true, .next = 0, .second = 8, .nr = 2, .nr_deferred = 2,
};

FIXTURE_VARIANT_ADD(compat, two) {
	.made_up = true, .next = STACK + 16, .second = 16, .nr = 3, .nr_deferred = 3,
};

FIXTURE_VARIANT_ADD(compat, unaligned) {
	.made_up = true, .next = STACK + 9, .second = 9, .nr = 3, .nr_deferred = 2,
};

FIXTURE_VARIANT_ADD(compat, unmapped) {
	.made_up = true, .next = STACK + PAGE, .second = 8, .nr = 2, .nr_deferred = 2,
};

FIXTURE_VARIANT_ADD(compat, half_mapped) {
	.made_up = true, .next = STACK + PAGE - 4, .second = 8, .nr = 2, .nr_deferred = 2,
};

/* In what is the kernel's half where the kernel is a 32-bit one, too. */
FIXTURE_VARIANT_ADD(compat, high) {
	.made_up = true, .next = 0xc0000000, .second = 8, .nr = 2, .nr_deferred = 2,
};

/* Above what a 32-bit program can have. */
FIXTURE_VARIANT_ADD(compat, too_high) {
	.made_up = true, .next = 0xfffff000, .second = 8, .nr = 2, .nr_deferred = 2,
};

/* The frame goes past 4 GiB, where there is nothing; its address does not wrap. */
FIXTURE_VARIANT_ADD(compat, across_the_end) {
	.made_up = true, .next = 0xfffffffc, .second = 8, .nr = 2, .nr_deferred = 2,
};

FIXTURE_VARIANT_ADD(compat, own_next) {
	.made_up = true, .next = STACK, .second = 8, .max_stack = 7, .nr = 7, .nr_deferred = 2,
};

FIXTURE_VARIANT_ADD(compat, ring) {
	.made_up = true, .next = STACK + 8, .second = 8, .second_next = STACK,
	.max_stack = 7, .nr = 7, .nr_deferred = 3,
};

/* Where the task is, and where each of its calls returns to. */
static int frames_of_calls(struct range *frames, const struct image *im)
{
	if (image_function(im, "work_loop", &frames[0]) ||
	    image_function(im, "descend", &frames[1]) ||
	    image_function(im, "program", &frames[DEPTH + 2]) ||
	    image_function(im, "_start", &frames[DEPTH + 3]))
		return -1;
	for (int i = 2; i <= DEPTH + 1; i++)
		frames[i] = frames[1];
	return 0;
}

/* The same of the made-up ones: now the first, now the second. */
static int frames_made_up(struct range *frames, const struct image *im, bool both)
{
	struct range ret[2];

	if (image_function(im, "work_loop", &frames[0]) ||
	    image_function(im, "descend", &ret[0]) ||
	    image_function(im, "program", &ret[1]))
		return -1;
	for (int i = 0; i < 2; i++)
		ret[i].last = ++ret[i].first;
	for (int i = 0; i < DEPTH; i++)
		frames[1 + i] = ret[both ? i % 2 : 0];
	return 0;
}

/* The program's argument: no calls, and this stack. */
static void stack_text(char *text, const __u8 *stack, size_t size)
{
	text += sprintf(text, "00");
	for (size_t i = 0; i < size; i++)
		text += sprintf(text, "%02x", stack[i]);
}

/* Becomes the program without arguments: 0, 1 if the kernel does not know such programs. */
static int try_program(const char *path)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		execl(path, path, NULL);
		_exit(errno);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return bid_fail("fork: %s", strerror(errno));
	if (WIFEXITED(status) && WEXITSTATUS(status) == ENOEXEC) {
		bid_fail("the kernel runs no 32-bit programs");
		return 1;
	}
	return status ? bid_fail("%s ends with status %#x", path, status) : 0;
}

FIXTURE_SETUP(compat)
{
	struct frame32 first = { .next = variant->next }, second = { .next = variant->second_next };
	char path[PATH_MAX], text[2 * STACK_USER + 3];
	__u8 stack[STACK_USER] = {};
	int ret = bid_ready();

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	if (bid_helper_path(path, sizeof(path), "bid_prog32"))
		SKIP(return, "the compiler makes no 32-bit x86 programs: %s", bid_error);
	ret = try_program(path);
	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, image_open(&self->w.image, path)) TH_LOG("%s", bid_error);

	if (variant->made_up) {
		ASSERT_EQ(0, frames_made_up(self->w.frames, &self->w.image, variant->next != STACK))
			TH_LOG("%s", bid_error);
		first.ret = self->w.frames[1].first;
		second.ret = self->w.frames[2].first;
		memcpy(stack, &first, sizeof(first));
		memcpy(stack + variant->second, &second, sizeof(second));
		stack_text(text, stack, sizeof(stack));
	} else {
		ASSERT_EQ(0, frames_of_calls(self->w.frames, &self->w.image))
			TH_LOG("%s", bid_error);
		sprintf(text, "%02x", DEPTH);
	}
	ASSERT_EQ(0, bid_child_fork(&self->w.child, path, -1, text)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_child_exec(&self->w.child)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_maps_read(&maps, self->w.child.pid)) TH_LOG("%s", bid_error);
}

FIXTURE_TEARDOWN(compat)
{
	bid_event_close(&self->w.e);
	bid_tool_close(&self->w.t);
	bid_child_kill(&self->w.child);
}

/* Frame i by its address, by its entry or by both. */
static int check_frame(const struct watch *w, size_t i, const __u64 *ip,
		       const struct perf_sample_build_id_offset *e)
{
	struct range r = w->frames[i];

	if (ip && (*ip < r.first || *ip > r.last))
		return bid_fail("frame %zu is %#llx, not in %#llx..%#llx", i, ULL(*ip),
				ULL(r.first), ULL(r.last));
	if (!e || e->build_id.status != PERF_BUILD_ID_OFFSET_RESOLVED)
		return 0;
	if (e->build_id.size != w->image.id_size ||
	    memcmp(e->build_id.data, w->image.id, BID_SIZE_MAX))
		return bid_fail("frame %zu has an ID of %u bytes %02x%02x..", i,
				e->build_id.size, e->build_id.data[0], e->build_id.data[1]);
	r.first = image_offset(&w->image, ip ? *ip : r.first);
	r.last = image_offset(&w->image, ip ? *ip : r.last);
	if (e->offset < r.first || e->offset > r.last)
		return bid_fail("frame %zu has offset %#llx, not in %#llx..%#llx", i,
				ULL(e->offset), ULL(r.first), ULL(r.last));
	return 0;
}

/* A callchain without its marker, in one form or both. */
static int check_frames(struct watch *w, __u64 nr, const __u64 *ips,
			const struct perf_sample_build_id_offset *entries)
{
	size_t resolved = 0;

	if (nr != w->nr)
		return bid_fail("%llu frames, not %zu", ULL(nr), w->nr);
	for (size_t i = 0; i < nr; i++) {
		if (check_frame(w, i, ips ? &ips[i] : NULL, entries ? &entries[i] : NULL))
			return -1;
		resolved += entries && entries[i].build_id.status == PERF_BUILD_ID_OFFSET_RESOLVED;
	}
	w->resolved += resolved == nr;
	return 0;
}

/* work_loop() has its frame pointer in the stack pointer, too. */
static int check_registers(const struct watch *w, const struct bid_sample *s)
{
	const struct frame32 *stack = s->stack;

	if (s->regs_user_abi != PERF_SAMPLE_REGS_ABI_32)
		return bid_fail("registers have ABI %llu", ULL(s->regs_user_abi));
	if (s->user_ip < w->frames[0].first || s->user_ip > w->frames[0].last)
		return bid_fail("the user's IP is %#llx", ULL(s->user_ip));
	if (s->stack_size != STACK_USER)
		return bid_fail("%llu bytes of stack", ULL(s->stack_size));
	if (stack->ret < w->frames[1].first || stack->ret > w->frames[1].last)
		return bid_fail("the stack begins with %#x, %#x", stack->next, stack->ret);
	return 0;
}

static int each_sample(const struct bid_sample *s, void *arg)
{
	if (!s->nr_ips || s->ips[0] != (__u64)PERF_CONTEXT_USER)
		return bid_fail("the callchain does not begin with its marker");
	if (check_frames(arg, s->nr_ips - 1, s->ips + 1, s->entries + 1))
		return -1;
	return check_registers(arg, s);
}

static int each_deferred(const struct bid_deferred *d, void *arg)
{
	return check_frames(arg, d->nr, d->ips, d->entries);
}

static void load_wait(void *arg)
{
	(void)arg;
	usleep(5000);
}

static int sample(struct watch *w, size_t nr, __u32 max_stack)
{
	struct bid_check c = {
		.attr = &w->attr, .maps = &maps, .each = each_sample, .each_arg = w,
	};

	w->nr = nr;
	w->attr.sample_type |= PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
	w->attr.sample_regs_user = BID_REG_IP;
	w->attr.sample_stack_user = STACK_USER;
	w->attr.sample_max_stack = max_stack;
	w->attr.exclude_callchain_kernel = 1;
	if (bid_event_open(&w->e, &w->attr, w->child.pid, -1, -1, BID_RING_PAGES))
		return -1;
	return bid_collect(&w->e, &c, load_wait, NULL,
			   bid_preempt_rt() ? &c.stats.samples : &w->resolved, WANT);
}

static int sample_deferred(struct watch *w, size_t nr, __u32 max_stack)
{
	struct bid_tool *t = &w->t;
	struct bid_pairs p;

	w->nr = nr;
	w->attr.sample_max_stack = max_stack;
	bid_attr_defer(&w->attr);
	if (bid_tool_open(t, &w->attr, &maps, w->child.pid, -1, BID_RING_PAGES))
		return -1;
	t->each_deferred = each_deferred;
	t->each_arg = w;
	if (bid_collect_fn(t->e, t->nr, bid_tool_record, t, load_wait, NULL, &w->resolved, WANT))
		return -1;
	bid_tool_pairs(t, BID_FULL, &p);
	return p.repeated || p.differ || p.strays ?
	       bid_fail("%lu twice, %lu/%lu wrong", p.repeated, p.differ, p.strays) : 0;
}

/* Samples of an interrupt, most of them in user mode. */
TEST_F_TIMEOUT(compat, clock, BID_TIMEOUT_S)
{
	bid_attr_init(&self->w.attr, PERF_COUNT_SW_CPU_CLOCK, ALL_FOUR);
	EXPECT_EQ(0, sample(&self->w, variant->nr, variant->max_stack)) TH_LOG("%s", bid_error);
}

/* Samples in system calls: the user part is what the kernel saved. */
TEST_F_TIMEOUT(compat, calls, BID_TIMEOUT_S)
{
	int ret = bid_attr_tracepoint(&self->w.attr, "raw_syscalls/sys_enter", ALL_FOUR);

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, sample(&self->w, variant->nr, variant->max_stack)) TH_LOG("%s", bid_error);
}

TEST_F_TIMEOUT(compat, clock_deferred, BID_TIMEOUT_S)
{
	int ret = bid_deferred_ready();

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	bid_attr_init(&self->w.attr, PERF_COUNT_SW_CPU_CLOCK, ALL_FOUR);
	EXPECT_EQ(0, sample_deferred(&self->w, variant->nr_deferred, variant->max_stack))
		TH_LOG("%s", bid_error);
}

TEST_F_TIMEOUT(compat, calls_deferred, BID_TIMEOUT_S)
{
	int ret = bid_deferred_ready();

	if (!ret)
		ret = bid_attr_tracepoint(&self->w.attr, "raw_syscalls/sys_enter", ALL_FOUR);
	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, sample_deferred(&self->w, variant->nr_deferred, variant->max_stack))
		TH_LOG("%s", bid_error);
}

#else

TEST(no_compat)
{
	SKIP(return, "32-bit programs beside a kernel's own are only looked at on x86-64");
}

#endif

TEST_HARNESS_MAIN
