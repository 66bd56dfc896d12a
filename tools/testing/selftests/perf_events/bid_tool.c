// SPDX-License-Identifier: GPL-2.0
/*
 * What the tests of deferred callchains share: the book of cookies, tools that
 * keep one, and system calls whose callchain is made up.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bid_common.h"

/* Cookies */

#define BOOK_SLOTS	1024		/* to begin with */

static int book_alloc(struct bid_cookies *book, size_t slots)
{
	book->slot = mmap(NULL, slots * sizeof(*book->slot), PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (book->slot == MAP_FAILED) {
		book->slot = NULL;
		return bid_fail("no memory for %zu cookies", slots);
	}
	book->slots = slots;
	return 0;
}

static void book_free(struct bid_cookies *book)
{
	if (book->slot)
		munmap(book->slot, book->slots * sizeof(*book->slot));
	memset(book, 0, sizeof(*book));
}

/* Where the cookie is, or where it is to go. */
static struct bid_cookie *book_find(const struct bid_cookies *book, __u64 cookie)
{
	size_t i = (cookie * 0x9e3779b97f4a7c15ULL >> 20) & (book->slots - 1);

	while (book->slot[i].cookie && book->slot[i].cookie != cookie)
		i = (i + 1) & (book->slots - 1);
	return &book->slot[i];
}

static int book_grow(struct bid_cookies *book)
{
	struct bid_cookies old = *book;

	if (book_alloc(book, old.slots ? 4 * old.slots : BOOK_SLOTS)) {
		*book = old;
		return -1;
	}
	for (size_t i = 0; i < old.slots; i++)
		if (old.slot[i].cookie)
			*book_find(book, old.slot[i].cookie) = old.slot[i];
	book_free(&old);
	return 0;
}

/* The cookie's entry, a new one if need be. It belongs to one task. */
static struct bid_cookie *book_get(struct bid_cookies *book, __u64 cookie, __u32 pid, __u32 tid)
{
	struct bid_cookie *k;

	if (2 * book->nr >= book->slots && book_grow(book))
		return NULL;
	k = book_find(book, cookie);
	if (!k->cookie) {
		k->cookie = cookie;
		k->pid = pid;
		k->tid = tid;
		book->nr++;
	}
	/* a record without sample_id does not say whose it is */
	if (tid && (k->pid != pid || k->tid != tid)) {
		bid_fail("cookie %#llx is of task %u/%u and of %u/%u", ULL(cookie), k->pid, k->tid,
			 pid, tid);
		return NULL;
	}
	return k;
}

static int book_sample(const struct bid_sample *s, void *tool)
{
	struct bid_tool *t = tool;
	__u64 cookie = bid_sample_cookie(s);
	struct bid_cookie *k;

	if (t->only && t->only != (pid_t)s->pid)
		return 0;
	if (cookie) {
		k = book_get(&t->book, cookie, s->pid, s->tid);
		if (!k)
			return -1;
		if (!k->samples++) {
			k->cpu = s->cpu;
			k->time = s->time;
		}
		if (!k->ip)
			k->ip = s->user_ip;
		else if (s->user_ip && s->user_ip != k->ip)
			k->strays++;
	}
	return t->each ? t->each(s, t->each_arg) : 0;
}

static int book_deferred(const struct bid_deferred *d, void *tool)
{
	struct bid_tool *t = tool;
	int form = d->entries ? BID_FULL : BID_PLAIN;
	struct bid_cookie *k;

	if (t->only && t->only != (pid_t)d->pid)
		return 0;
	k = book_get(&t->book, d->cookie, d->pid, d->tid);
	if (!k)
		return -1;
	if (!k->records[form]++) {
		k->record_cpu = d->cpu;
		k->nr[form] = d->nr;
		if (d->entries && d->nr)
			k->first = d->entries[0];
		if (d->ips && d->nr)
			k->first_ip = d->ips[0];
	}
	return t->each_deferred ? t->each_deferred(d, t->each_arg) : 0;
}

/* Does what the record begins with stand for the sample's user address? */
static bool first_agrees(const struct bid_tool *t, const struct bid_cookie *k, int form)
{
	if (!k->nr[form])
		return false;
	return form == BID_PLAIN ? k->first_ip == k->ip :
				   !bid_check_frame(&t->check, k->pid, &k->first, k->ip);
}

/* Did the task ask again after this? */
static bool is_last(const struct bid_tool *t, const struct bid_cookie *k)
{
	for (size_t i = 0; i < t->book.slots; i++)
		if (t->book.slot[i].tid == k->tid && t->book.slot[i].time > k->time)
			return false;
	return true;
}

/* A task that becomes another program in a system call is in two places. */
static bool has_execed(const struct bid_tool *t, const struct bid_cookie *k)
{
	return t->execs && t->execs[k->tid % BID_EXECS];
}

/* What a cookie and its one record say of where the task was. */
static void compare_pair(const struct bid_tool *t, const struct bid_cookie *k, int form,
			 struct bid_pairs *pairs)
{
	pairs->moved += k->cpu != k->record_cpu;
	if (!k->ip)
		return;
	if (first_agrees(t, k, form))
		pairs->agree++;
	else if (has_execed(t, k))
		pairs->in_exec += !k->strays;	/* else it is counted */
	else
		pairs->differ++;
}

void bid_tool_pairs(struct bid_tool *t, int form, struct bid_pairs *pairs)
{
	memset(pairs, 0, sizeof(*pairs));
	for (size_t i = 0; i < t->book.slots; i++) {
		const struct bid_cookie *k = &t->book.slot[i];

		if (!k->cookie)
			continue;
		pairs->cookies++;
		pairs->samples += k->samples;
		pairs->pairs += k->samples && k->records[form] == 1;
		pairs->unanswered += k->samples && !k->records[form];
		pairs->unasked += !k->samples;
		pairs->repeated += k->records[form] > 1;
		if (has_execed(t, k))
			pairs->in_exec += !!k->strays;
		else
			pairs->strays += k->strays;
		if (k->samples && !k->records[form] && pairs->unanswered < 1000)
			pairs->last += is_last(t, k);
		if (k->samples && k->records[form] == 1)
			compare_pair(t, k, form, pairs);
	}
}

int bid_tool_paired(struct bid_tool *t, int form, unsigned long want)
{
	char why[sizeof(bid_error)];
	struct bid_pairs p;

	bid_tool_pairs(t, form, &p);
	memcpy(why, bid_error, sizeof(why));
	if (p.pairs < want || p.unanswered || p.unasked || p.repeated || p.differ || p.strays)
		return bid_fail("%lu/%lu pairs, %lu/%lu alone, %lu twice, %lu/%lu wrong: %.200s",
				p.pairs, want, p.unanswered, p.unasked, p.repeated, p.differ,
				p.strays, p.differ ? why : "");
	return 0;
}

/* Tools */

void bid_attr_defer(struct perf_event_attr *attr)
{
	attr->defer_callchain = 1;
	attr->defer_output = 1;
	attr->sample_id_all = 1;
	attr->sample_type |= BID_ORIGIN;
}

static int open_one(struct bid_tool *t, pid_t pid, int cpu, size_t pages)
{
	struct bid_event *e = &t->e[t->nr];

	if (bid_event_open(e, &t->attr, pid, cpu, -1, pages))
		return -1;
	t->nr++;
	return 0;
}

int bid_tool_init(struct bid_tool *t, const struct perf_event_attr *attr,
		  const struct bid_maps *maps)
{
	t->attr = *attr;
	t->nr = 0;
	memset(&t->check, 0, sizeof(t->check));
	t->check.attr = &t->attr;
	t->check.maps = maps;
	t->check.each = book_sample;
	t->check.each_deferred = book_deferred;
	t->check.each_arg = t;
	return book_alloc(&t->book, BOOK_SLOTS);
}

int bid_tool_open(struct bid_tool *t, const struct perf_event_attr *attr,
		  const struct bid_maps *maps, pid_t pid, int cpu, size_t pages)
{
	long conf = sysconf(_SC_NPROCESSORS_CONF);

	if (bid_tool_init(t, attr, maps))
		return -1;
	if (cpu != BID_EACH_CPU)
		return open_one(t, pid, cpu, pages);
	for (cpu = 0; cpu < conf && t->nr < BID_CPUS_MAX; cpu++) {
		errno = 0;
		if (open_one(t, pid, cpu, pages) && errno != ENODEV)	/* not online */
			return -1;
	}
	return t->nr ? 0 : bid_fail("no CPU");
}

void bid_tool_close(struct bid_tool *t)
{
	for (size_t i = 0; i < t->nr; i++)
		bid_event_close(&t->e[i]);
	t->nr = 0;
	book_free(&t->book);
}

int bid_tool_enable(struct bid_tool *t)
{
	for (size_t i = 0; i < t->nr; i++)
		if (bid_event_enable(&t->e[i]))
			return -1;
	return 0;
}

int bid_tool_disable(struct bid_tool *t)
{
	for (size_t i = 0; i < t->nr; i++)
		if (bid_event_disable(&t->e[i]))
			return -1;
	return 0;
}

int bid_tool_record(const struct perf_event_header *hdr, void *tool)
{
	struct bid_tool *t = tool;

	return bid_check_record(hdr, &t->check);
}

int bid_tool_drain(struct bid_tool *t)
{
	for (size_t i = 0; i < t->nr; i++)
		if (t->e[i].page && bid_drain(&t->e[i], bid_tool_record, t))
			return -1;
	return 0;
}

/* Is there a cookie where the kernel without the new bits would have one? */

static int find_cookie(const struct bid_sample *s, void *arg)
{
	unsigned long *cookies = arg;

	*cookies += bid_sample_cookie(s) != 0;
	return 0;
}

int bid_deferred_ready(void)
{
	unsigned long cookies = 0;
	struct perf_event_attr attr;
	struct bid_tool t = { .each = find_cookie, .each_arg = &cookies };
	int ret = bid_ready();

	if (ret)
		return ret;
	bid_attr_init(&attr, PERF_COUNT_SW_PAGE_FAULTS, PERF_SAMPLE_CALLCHAIN);
	bid_attr_defer(&attr);
	ret = bid_tool_open(&t, &attr, NULL, 0, -1, BID_RING_PAGES);
	if (!ret)
		ret = bid_tool_enable(&t);
	if (!ret) {
		bid_load_faults(NULL);
		ret = bid_tool_drain(&t);
	}
	bid_tool_close(&t);
	if (!ret && !cookies) {
		bid_fail("the kernel does not defer callchains");
		return 1;
	}
	return ret;
}

/* Tasks that do something when they are told to */

int bid_task_fork(struct bid_task *t, void (*fn)(void *arg), void *arg)
{
	int go[2], back[2];
	char byte;

	if (pipe2(go, O_CLOEXEC) || pipe2(back, O_CLOEXEC))
		return bid_fail("pipe: %s", strerror(errno));
	t->pid = fork();
	if (t->pid < 0)
		return bid_fail("fork: %s", strerror(errno));
	if (!t->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(go[1]);
		close(back[0]);
		t->in = go[0];
		t->out = back[1];
		if (read(t->in, &byte, 1) != 1)
			_exit(1);
		fn(arg);
		_exit(0);
	}
	close(go[0]);
	close(back[1]);
	t->out = go[1];
	t->in = back[0];
	return 0;
}

/* A word to the other side: to go on, or that it has come so far. */
int bid_task_tell(struct bid_task *t)
{
	return write(t->out, "", 1) == 1 ? 0 : bid_fail("nobody listens");
}

int bid_task_listen(struct bid_task *t)
{
	char byte;

	return read(t->in, &byte, 1) == 1 ? 0 : bid_fail("nobody speaks");
}

int bid_task_wait(struct bid_task *t, int *status)
{
	pid_t pid = t->pid;

	t->pid = 0;
	if (pid > 0 && waitpid(pid, status, 0) != pid)
		return bid_fail("waitpid: %s", strerror(errno));
	return 0;
}

void bid_task_kill(struct bid_task *t)
{
	if (t->pid > 0)
		kill(t->pid, SIGKILL);
	bid_task_wait(t, NULL);
}

/* Made-up files */

#define NOTE_AT	256

void bid_make_elf(void *image, size_t size, __u8 id)
{
	Elf64_Ehdr *eh = image;
	Elf64_Phdr *ph = (Elf64_Phdr *)(eh + 1);
	Elf64_Nhdr *nh = (Elf64_Nhdr *)((char *)image + NOTE_AT);

	memset(image, 0, size);
	memcpy(eh->e_ident, ELFMAG, SELFMAG);
	eh->e_ident[EI_CLASS] = ELFCLASS64;
	eh->e_ident[EI_DATA] = ELFDATA2LSB;
	eh->e_ident[EI_VERSION] = EV_CURRENT;
	eh->e_type = ET_DYN;
	eh->e_phnum = 1;
	eh->e_phentsize = sizeof(*ph);
	eh->e_phoff = sizeof(*eh);
	ph->p_type = PT_NOTE;
	ph->p_offset = NOTE_AT;
	ph->p_filesz = sizeof(*nh) + 4 + BID_SIZE_MAX;
	ph->p_align = 4;
	nh->n_namesz = 4;
	nh->n_descsz = BID_SIZE_MAX;
	nh->n_type = NT_GNU_BUILD_ID;
	memcpy(nh + 1, "GNU", 4);
	memset((char *)(nh + 1) + 4, id, BID_SIZE_MAX);
}

/* Made-up callchains */

void bid_plant(struct bid_planted *frames, const __u64 *ret, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		frames[i].next = i + 1 < nr ? (__u64)&frames[i + 1] : 0;
		frames[i].ret = ret[i];
	}
}

#ifdef __x86_64__
__asm__(".pushsection .text\n"
	".globl bid_planted_call\n"
	".globl bid_planted_return\n"
	".type bid_planted_call, @function\n"
	"bid_planted_call:\n"
	"	push %rbp\n"
	"	mov %rdi, %rbp\n"
	"	mov %rsi, %rax\n"
	"	mov %rdx, %rdi\n"
	"	mov %rcx, %rsi\n"
	"	mov %r8, %rdx\n"
	"	syscall\n"
	"bid_planted_return:\n"
	"	pop %rbp\n"
	"	ret\n"
	".size bid_planted_call, . - bid_planted_call\n"
	".popsection\n");
#endif
