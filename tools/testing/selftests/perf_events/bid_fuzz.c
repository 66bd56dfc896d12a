// SPDX-License-Identifier: GPL-2.0
/*
 * Calls at random: perf_event_open() with attributes, targets and groups that
 * make sense more often than not, the new sample types in most of them, and
 * everything that can be done to an event and its ring, beside forks, execs,
 * threads and signals. Whatever comes out of a ring is read by its format and
 * must keep to it.
 *
 * A round is a process and a number that all its choices follow from. What fails
 * says which it was; it can be run again, alone:
 *
 *   BID_SEED=N		all rounds follow from this (default: a new one)
 *   BID_ROUND=N	only this round
 *   BID_CALLS=N	how many calls (default: as many as fit into BID_SECONDS)
 *   BID_SECONDS=N	how long (default: 15)
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kselftest_harness.h"
#include "bid_chance.h"
#include "bid_common.h"

#define WORKERS		2
#define ROUND_CALLS	2000
#define ROUND_LIMIT_S	(180 * BID_SLOWER)
#define SLOTS		24
#define KNOWN		1024		/* a power of two, as the next */
#define COOKIES		4096
#define TRACEPOINTS	1024
#define CHOSEN		6
#define NOBODY		65534

/* What all rounds add up to; shared. */
static struct totals {
	unsigned long	calls, opens, opened, maps, ioctls, reads;
	unsigned long	records, samples, deferred, unread, signals;
	unsigned long	user[BID_STATUS_NR];
	unsigned long	next_round;
	char		error[512];
} *totals;

static void count(unsigned long *what)
{
	__atomic_fetch_add(what, 1, __ATOMIC_RELAXED);
}

static bool one_in(unsigned int n)
{
	return !below(n);
}

/* Every event that was opened lately: rings hold records of closed ones. */

static struct known {
	__u64			id;
	struct perf_event_attr	attr;
} known[KNOWN];

static unsigned int nr_known;

static const struct perf_event_attr *attr_of(__u64 id)
{
	for (unsigned int i = 0; i < KNOWN; i++)
		if (known[i].id == id)
			return &known[i].attr;
	return NULL;
}

/* A slot is an event, with or without a ring. */

static struct slot {
	struct bid_event	e;
	bool			open;
	bool			mixed;		/* others write to the ring, or do not say who */
	bool			overwritten;	/* and not to be read in order */
} slots[SLOTS];

static bool says_who(const struct perf_event_attr *attr)
{
	return attr->sample_type & PERF_SAMPLE_IDENTIFIER && attr->sample_id_all;
}

static struct slot *some_slot(bool open)
{
	unsigned int first = below(SLOTS);

	for (unsigned int i = 0; i < SLOTS; i++) {
		struct slot *s = &slots[(first + i) % SLOTS];

		if (s->open == open)
			return s;
	}
	return NULL;
}

/* Records */

static struct {
	__u64	cookie;
	__u32	tid;
} cookies[COOKIES];

/* A cookie belongs to one task. */
static int cookie_of(__u64 cookie, __u32 tid)
{
	unsigned int at = (cookie * 0x9e3779b97f4a7c15ULL) >> 52;

	if (!cookie || !tid)
		return 0;
	if (cookies[at].cookie == cookie && cookies[at].tid != tid)
		return bid_fail("cookie %#llx is of tasks %u and %u", (unsigned long long)cookie,
				cookies[at].tid, tid);
	cookies[at].cookie = cookie;
	cookies[at].tid = tid;
	return 0;
}

static int each_sample(const struct bid_sample *s, void *arg)
{
	(void)arg;
	count(&totals->samples);
	return cookie_of(bid_sample_cookie(s), s->tid);
}

static int each_deferred(const struct bid_deferred *d, void *arg)
{
	(void)arg;
	count(&totals->deferred);
	return cookie_of(d->cookie, d->tid);
}

/* Whose record it is: it says so at its beginning, or at its end. */
static const struct perf_event_attr *whose(const struct slot *s,
					   const struct perf_event_header *hdr)
{
	const __u64 *word = (const __u64 *)hdr;

	if (!s->mixed)
		return &s->e.attr;
	return attr_of(word[hdr->type == PERF_RECORD_SAMPLE ? 1 : hdr->size / 8 - 1]);
}

static bool unprivileged;

static int check_record(const struct perf_event_header *hdr, void *slot)
{
	const struct perf_event_attr *attr = whose(slot, hdr);
	struct bid_check c = {
		.attr = attr,
		.pid = -1,
		.flags = BID_LOOSE | BID_DEEP | BID_EXITS | BID_UNREADABLE | BID_PLANTED,
		.each = each_sample,
		.each_deferred = each_deferred,
	};

	count(&totals->records);
	if (!attr) {
		count(&totals->unread);
		return 0;
	}
	if (unprivileged)
		c.flags |= BID_NO_KERNEL;
	if (bid_check_record(hdr, &c))
		return -1;
	for (int i = 0; i < BID_STATUS_NR; i++)
		__atomic_fetch_add(&totals->user[i], c.stats.user[i], __ATOMIC_RELAXED);
	return 0;
}

static int drain(struct slot *s)
{
	if (!s->e.page)
		return 0;
	if (s->overwritten) {
		count(&totals->unread);
		return 0;
	}
	return bid_drain(&s->e, check_record, s);
}

/* Attributes */

static unsigned int tracepoints[TRACEPOINTS], nr_tracepoints;
static unsigned int calls_tracepoint, kprobe_type;
static unsigned int chosen[CHOSEN];	/* of the tracepoints, for this round */

static unsigned int number_in(const char *path)
{
	char text[32] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return 0;
	if (read(fd, text, sizeof(text) - 1) <= 0)
		text[0] = '\0';
	close(fd);
	return strtoul(text, NULL, 10);
}

static void find_tracepoints_of(const char *system)
{
	char path[PATH_MAX];
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof(path), "/sys/kernel/tracing/events/%s", system);
	dir = opendir(path);
	while (dir && (entry = readdir(dir)) && nr_tracepoints < TRACEPOINTS) {
		snprintf(path, sizeof(path), "/sys/kernel/tracing/events/%s/%s/id", system,
			 entry->d_name);
		tracepoints[nr_tracepoints] = number_in(path);
		nr_tracepoints += tracepoints[nr_tracepoints] != 0;
	}
	if (dir)
		closedir(dir);
}

/* Those that fire in many contexts; those of locks would drown everything else. */
static void find_tracepoints(void)
{
	static const char * const systems[] = {
		"raw_syscalls", "sched", "irq", "irq_vectors", "timer", "exceptions", "mmap_lock",
		"mmap", "nmi", "kmem", "signal", "task", "rcu", "workqueue", "filemap",
		"maple_tree",
	};
	struct perf_event_attr attr;

	if (!bid_attr_tracepoint(&attr, "raw_syscalls/sys_enter", 0))
		calls_tracepoint = attr.config;
	for (size_t i = 0; i < BID_ARRAY_SIZE(systems); i++)
		find_tracepoints_of(systems[i]);
	kprobe_type = number_in("/sys/bus/event_source/devices/kprobe/type");
}

/*
 * What breakpoints are on. It is shared, and written to before there are any, as an
 * access to it may not fault: QEMU would raise the breakpoint in the kernel's entry for
 * the fault, where the walk of a callchain then overwrites the address of it (CR2).
 */
#define WATCHED_SIZE	4096
static char *watched;

static void any_kind(struct perf_event_attr *attr)
{
	static const __u32 software[] = {
		PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_TASK_CLOCK, PERF_COUNT_SW_PAGE_FAULTS,
		PERF_COUNT_SW_CONTEXT_SWITCHES, PERF_COUNT_SW_CPU_MIGRATIONS,
		PERF_COUNT_SW_PAGE_FAULTS_MIN, PERF_COUNT_SW_PAGE_FAULTS, PERF_COUNT_SW_DUMMY,
	};
	static const char * const functions[] = {
		"do_mmap", "do_munmap", "handle_mm_fault", "exit_mmap", "no_such_function",
	};
	unsigned int kind = below(100);

	attr->type = PERF_TYPE_SOFTWARE;
	attr->config = software[below(BID_ARRAY_SIZE(software))];
	attr->sample_period = 1 << below(12);
	if (attr->config <= PERF_COUNT_SW_TASK_CLOCK)
		attr->sample_period = BID_SLOWER * 20000 << below(8);
	if (kind < 30 && nr_tracepoints) {
		attr->type = PERF_TYPE_TRACEPOINT;
		attr->config = chosen[below(CHOSEN)];
	} else if (kind < 35) {
		attr->type = PERF_TYPE_BREAKPOINT;
		attr->config = 0;
		attr->bp_type = 1 + below(3);
		attr->bp_addr = (unsigned long)watched + 8 * below(16);
		attr->bp_len = 1 << below(4);
	} else if (kind < 36 && kprobe_type) {
		attr->type = kprobe_type;
		attr->config = below(2);
		attr->config1 = (unsigned long)functions[below(BID_ARRAY_SIZE(functions))];
	} else if (kind < 38) {
		attr->type = below(8);
		attr->config = any() >> below(64);
	}
}

static __u64 any_sample_type(void)
{
	static const __u64 usual[] = {
		BID_BITS, BID_CHAIN, BID_IP, BID_BITS | PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN,
		BID_CHAIN | PERF_SAMPLE_CALLCHAIN, 0, PERF_SAMPLE_CALLCHAIN,
	};
	__u64 type = usual[below(BID_ARRAY_SIZE(usual))];

	if (!one_in(4))
		type |= PERF_SAMPLE_IDENTIFIER;
	if (!one_in(4))
		type |= PERF_SAMPLE_TID;
	for (int bit = 0; bit < 25; bit++)
		if (one_in(8))
			type |= 1ULL << bit;
	/* one of the two; and there is no hardware that could record branches */
	if (!one_in(50))
		type &= ~(PERF_SAMPLE_WEIGHT | PERF_SAMPLE_AUX | PERF_SAMPLE_BRANCH_STACK);
	if (one_in(50))
		type |= 1ULL << below(64);
	return type;
}

static void any_flags(struct perf_event_attr *attr)
{
	attr->disabled = one_in(3);
	attr->inherit = one_in(4);
	attr->pinned = one_in(20);
	attr->exclusive = one_in(20);
	attr->exclude_user = one_in(10);
	attr->exclude_kernel = unprivileged ? !one_in(20) : one_in(3);
	attr->exclude_idle = one_in(10);
	attr->mmap = one_in(4);
	attr->mmap2 = attr->mmap;
	attr->comm = one_in(4);
	attr->task = one_in(4);
	attr->ksymbol = one_in(20);
	attr->inherit_stat = one_in(20);
	attr->enable_on_exec = one_in(10);
	attr->sample_id_all = !one_in(4);
	attr->exclude_callchain_kernel = one_in(4);
	attr->exclude_callchain_user = one_in(8);
	attr->write_backward = one_in(12);
	attr->context_switch = one_in(8);
	attr->cgroup = one_in(16);
	attr->build_id = one_in(8);
	attr->inherit_thread = attr->inherit && one_in(4);
	attr->remove_on_exec = one_in(16) && !attr->enable_on_exec;
	attr->defer_callchain = one_in(3);
	attr->defer_output = one_in(3);
	attr->sigtrap = attr->remove_on_exec && one_in(2);
	attr->watermark = one_in(4);
	attr->wakeup_events = below(64);
}

static void any_attr(struct perf_event_attr *attr)
{
	memset(attr, 0, sizeof(*attr));
	attr->size = sizeof(*attr);
	any_kind(attr);
	attr->sample_type = any_sample_type();
	any_flags(attr);
	if (one_in(3))
		attr->read_format = below(32);
	if (one_in(3))
		attr->sample_max_stack = below(one_in(20) ? 65536 : 128);
	if (attr->sample_type & PERF_SAMPLE_STACK_USER)
		attr->sample_stack_user = 8 * below(one_in(4) ? 8200 : 64);
	if (attr->sample_type & PERF_SAMPLE_REGS_USER)
		attr->sample_regs_user = any() & 0xff0fff;
	if (attr->sample_type & PERF_SAMPLE_REGS_INTR)
		attr->sample_regs_intr = any() & 0xff0fff;
	if (one_in(10)) {
		attr->freq = 1;
		attr->sample_freq = 1 + below(4000);
	}
	if (one_in(10)) {
		attr->use_clockid = 1;
		attr->clockid = below(12);
	}
	/* and now and then, anything anywhere */
	if (one_in(30))
		((__u64 *)attr)[below(sizeof(*attr) / 8)] ^= 1ULL << below(64);
	if (one_in(100))
		attr->size = below(2 * sizeof(*attr));
}

/* Calls */

static pid_t bystander;		/* a task that does something */
static int cgroup_dir;

static int sys_open(struct perf_event_attr *attr, int group)
{
	static const unsigned long usual[] = {
		PERF_FLAG_FD_CLOEXEC, PERF_FLAG_FD_CLOEXEC, 0,
		PERF_FLAG_FD_CLOEXEC | PERF_FLAG_FD_OUTPUT, PERF_FLAG_FD_NO_GROUP,
	};
	pid_t pids[] = { 0, 0, 0, 0, bystander, bystander, -1, -1, getppid(), 1 };
	int cpu = one_in(3) ? (int)below(4) - 1 : -1;
	pid_t pid = pids[below(BID_ARRAY_SIZE(pids))];
	unsigned long flags = usual[below(BID_ARRAY_SIZE(usual))];

	if (pid == -1 && cpu == -1 && !one_in(20))
		cpu = below(2);
	if (one_in(20) && cgroup_dir >= 0) {
		pid = cgroup_dir;
		flags |= PERF_FLAG_PID_CGROUP;
		cpu = below(2);
	}
	if (one_in(50))
		flags ^= 1UL << below(8);
	return syscall(__NR_perf_event_open, attr, pid, cpu, group, flags);
}

static void remember(struct slot *s)
{
	known[nr_known % KNOWN].id = s->e.id;
	known[nr_known % KNOWN].attr = s->e.attr;
	nr_known++;
}

/* Someone else's records may come to the ring of the group's leader. */
static void share_ring(struct slot *to, const struct perf_event_attr *attr)
{
	if (!to)
		return;
	if (!says_who(attr) || !says_who(&to->e.attr))
		to->overwritten = true;
	to->mixed = true;
}

static int op_open(void)
{
	struct slot *s = some_slot(false), *leader = one_in(3) ? some_slot(true) : NULL;
	struct perf_event_attr attr;
	int fd;

	if (!s)
		return 0;
	any_attr(&attr);
	count(&totals->opens);
	fd = sys_open(&attr, leader ? leader->e.fd : one_in(50) ? (int)below(64) : -1);
	if (fd < 0)
		return 0;
	count(&totals->opened);
	/* a smaller size means that the rest is zero; what was read is what counts */
	if (attr.size && attr.size < sizeof(attr))
		memset((char *)&attr + attr.size, 0, sizeof(attr) - attr.size);
	memset(s, 0, sizeof(*s));
	s->e.attr = attr;
	s->e.fd = fd;
	s->open = true;
	if (ioctl(fd, PERF_EVENT_IOC_ID, &s->e.id))
		return bid_fail("PERF_EVENT_IOC_ID: %s", strerror(errno));
	remember(s);
	share_ring(leader, &attr);
	return 0;
}

static int op_close(void)
{
	struct slot *s = some_slot(true);

	if (!s)
		return 0;
	if (one_in(2) && drain(s))
		return -1;
	bid_event_close(&s->e);
	s->open = false;
	return 0;
}

static int op_mmap(void)
{
	struct slot *s = some_slot(true);
	size_t page = sysconf(_SC_PAGESIZE), pages = 1UL << below(6);
	int prot = PROT_READ | PROT_WRITE;
	void *p;

	if (!s || s->e.page)
		return 0;
	if (one_in(10))
		pages = below(20);
	if (one_in(8))
		prot = PROT_READ;
	p = mmap(NULL, (pages + 1) * page, prot, one_in(20) ? MAP_PRIVATE : MAP_SHARED, s->e.fd,
		 one_in(20) ? below(100) * page : 0);
	count(&totals->maps);
	if (p == MAP_FAILED)
		return 0;
	s->e.page = p;
	s->e.data_size = pages * page;
	if (!pages || prot == PROT_READ || s->e.attr.write_backward)
		s->overwritten = true;
	return 0;
}

static int op_munmap(void)
{
	struct slot *s = some_slot(true);

	if (!s || !s->e.page)
		return 0;
	if (drain(s))
		return -1;
	munmap(s->e.page, s->e.data_size + sysconf(_SC_PAGESIZE));
	s->e.page = NULL;
	/* what was mapped before may be mapped again, with another's records in it */
	s->mixed = true;
	s->overwritten = true;
	return 0;
}

static void redirect(struct slot *s)
{
	struct slot *to = one_in(4) ? NULL : some_slot(true);

	if (!ioctl(s->e.fd, PERF_EVENT_IOC_SET_OUTPUT, to ? to->e.fd : -1) && to && to != s)
		share_ring(to, &s->e.attr);
}

static int op_ioctl(void)
{
	struct slot *s = some_slot(true);
	__u64 value = 1 << below(16);
	int group = one_in(3) ? PERF_IOC_FLAG_GROUP : 0;

	if (!s)
		return 0;
	count(&totals->ioctls);
	switch (below(10)) {
	case 0:
	case 1:
	case 2:
		ioctl(s->e.fd, PERF_EVENT_IOC_ENABLE, group);
		break;
	case 3:
		ioctl(s->e.fd, PERF_EVENT_IOC_DISABLE, group);
		break;
	case 4:
		ioctl(s->e.fd, PERF_EVENT_IOC_RESET, group);
		break;
	case 5:
		ioctl(s->e.fd, PERF_EVENT_IOC_REFRESH, below(100));
		break;
	case 6:
		ioctl(s->e.fd, PERF_EVENT_IOC_PERIOD, &value);
		break;
	case 7:
		redirect(s);
		break;
	case 8:
		ioctl(s->e.fd, PERF_EVENT_IOC_PAUSE_OUTPUT, below(2));
		break;
	default:
		ioctl(s->e.fd, one_in(2) ? PERF_EVENT_IOC_SET_FILTER : any(), "common_pid != 0");
	}
	return 0;
}

static int op_read(void)
{
	static char buf[8192];
	struct slot *s = some_slot(true);

	if (!s)
		return 0;
	count(&totals->reads);
	if (read(s->e.fd, buf, below(one_in(4) ? sizeof(buf) : 64)) < 0 && one_in(4)) {
		struct pollfd p = { .fd = s->e.fd, .events = POLLIN };

		poll(&p, 1, 0);
	}
	return 0;
}

static int op_drain(void)
{
	struct slot *s = some_slot(true);

	return s ? drain(s) : 0;
}

static int op_signal(void)
{
	struct slot *s = some_slot(true);

	if (!s)
		return 0;
	fcntl(s->e.fd, F_SETSIG, SIGIO);
	fcntl(s->e.fd, F_SETOWN, getpid());
	fcntl(s->e.fd, F_SETFL, one_in(2) ? O_ASYNC : 0);
	return 0;
}

static int op_task(void)
{
	prctl(one_in(3) ? PR_TASK_PERF_EVENTS_DISABLE : PR_TASK_PERF_EVENTS_ENABLE);
	return 0;
}

/* What gives events something to count */

static void *thread_main(void *arg)
{
	bid_load_faults(arg);
	return NULL;
}

static int op_thread(void)
{
	pthread_t thread;

	if (!pthread_create(&thread, NULL, thread_main, NULL))
		pthread_join(thread, NULL);
	return 0;
}

static void child_main(unsigned int what)
{
	bid_load_faults(NULL);
	if (what == 0)
		execl("/bin/true", "true", NULL);
	if (what == 1)
		raise(SIGKILL);
	_exit(0);
}

static int op_fork(void)
{
	unsigned int what = below(4);
	pid_t pid = one_in(4) ? vfork() : fork();

	if (!pid)
		child_main(what);
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return 0;
}

static int op_work(void)
{
	switch (below(6)) {
	case 0:
		bid_load_faults(NULL);
		break;
	case 1:
		usleep(1);
		break;
	case 2:
		bid_spin(20000);
		break;
	default:
		for (unsigned int i = below(10); i; i--)
			syscall(__NR_getppid);
		__atomic_fetch_add(&watched[8 * below(16)], 1, __ATOMIC_RELAXED);
	}
	return 0;
}

static const struct op {
	unsigned int	weight;
	int		(*fn)(void);
} ops[] = {
	{ 300, op_open }, { 150, op_close }, { 100, op_mmap }, { 20, op_munmap },
	{ 150, op_ioctl }, { 80, op_read }, { 60, op_drain }, { 10, op_signal },
	{ 10, op_task }, { 100, op_work }, { 3, op_thread }, { 3, op_fork },
};

static int some_op(void)
{
	unsigned int all = 0, at;

	for (size_t i = 0; i < BID_ARRAY_SIZE(ops); i++)
		all += ops[i].weight;
	at = below(all);
	for (size_t i = 0; i < BID_ARRAY_SIZE(ops); i++) {
		if (at < ops[i].weight)
			return ops[i].fn();
		at -= ops[i].weight;
	}
	return 0;
}

/* Rounds */

/* An event that fires in here would do so for ever. */
static void on_signal(int sig, siginfo_t *info, void *context)
{
	(void)context;
	count(&totals->signals);
	if (sig == SIGIO)
		ioctl(info->si_fd, PERF_EVENT_IOC_DISABLE, 0);
	else
		prctl(PR_TASK_PERF_EVENTS_DISABLE);
}

static void handle_signals(void)
{
	struct sigaction action = {
		.sa_sigaction = on_signal,
		.sa_flags = SA_SIGINFO | SA_RESTART,
	};

	sigaction(SIGIO, &action, NULL);
	sigaction(SIGTRAP, &action, NULL);
}

static void bystander_main(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		bid_load_faults(NULL);
		usleep(5000 * BID_SLOWER);
	}
}

static int drop_privileges(void)
{
	if (setgid(NOBODY) || setuid(NOBODY))
		return bid_fail("setuid: %s", strerror(errno));
	prctl(PR_SET_DUMPABLE, 1);
	unprivileged = true;
	return 0;
}

/*
 * The first event of a kind and the last are slow: they patch the kernel's text
 * and wait for grace periods. In most rounds they are at the beginning and the end.
 */
static void keep_kinds(void)
{
	bool keep = !one_in(8);
	struct perf_event_attr attr;

	for (int i = 0; i < CHOSEN; i++) {
		chosen[i] = i && nr_tracepoints ? tracepoints[below(nr_tracepoints)] :
						  calls_tracepoint;
		bid_attr_init(&attr, chosen[i], BID_BITS);
		attr.type = PERF_TYPE_TRACEPOINT;
		if (keep)
			bid_open(&attr, 0, -1, -1);
	}
	for (int i = PERF_COUNT_SW_CPU_CLOCK; keep && i < PERF_COUNT_SW_MAX; i++) {
		bid_attr_init(&attr, i, BID_BITS);
		bid_open(&attr, 0, -1, -1);
	}
}

static int round_main(void)
{
	int ret = 0;

	memset(watched, 0, WATCHED_SIZE);
	keep_kinds();
	if (one_in(4) && drop_privileges())
		return -1;
	handle_signals();
	bystander = fork();
	if (!bystander)
		bystander_main();
	for (int i = 0; !ret && i < ROUND_CALLS; i++) {
		count(&totals->calls);
		ret = some_op();
	}
	for (int i = 0; i < SLOTS; i++) {
		if (slots[i].open && !ret)
			ret = drain(&slots[i]);
		if (slots[i].open && one_in(2))
			bid_event_close(&slots[i].e);
	}
	kill(bystander, SIGKILL);
	waitpid(bystander, NULL, 0);
	return ret;
}

static __u64 seed;

/* In a process of its own; 0 if it went well. */
static int run_round(unsigned long number)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		chance = (seed + number * 0x9e3779b97f4a7c15ULL) | 1;
		any();
		alarm(ROUND_LIMIT_S);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (!round_main())
			_exit(0);
		snprintf(totals->error, sizeof(totals->error), "round %lu: %.400s", number,
			 bid_error);
		_exit(1);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	if (!status)
		return 0;
	if (!totals->error[0])
		snprintf(totals->error, sizeof(totals->error), "round %lu ended with status %#x",
			 number, status);
	return -1;
}

static __u64 setting(const char *name, __u64 otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 0) : otherwise;
}

static void worker_main(__u64 calls, __u64 deadline)
{
	int failed = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!failed && !totals->error[0] && (calls ? totals->calls < calls :
						bid_now_ns() < deadline)) {
		unsigned long round = __atomic_fetch_add(&totals->next_round, 1, __ATOMIC_RELAXED);

		if (round && round % 50 == 0)
			ksft_print_msg("bid_fuzz: round %lu, %lu calls\n", round, totals->calls);
		failed = run_round(round);
	}
	_exit(!!failed);
}

static void print_totals(void)
{
	struct totals *t = totals;

	ksft_print_msg("bid_fuzz: %lu calls in %lu rounds\n", t->calls, t->next_round);
	ksft_print_msg("bid_fuzz: %lu opens (%lu opened), %lu mmaps, %lu ioctls, %lu reads\n",
		       t->opens, t->opened, t->maps, t->ioctls, t->reads);
	ksft_print_msg("bid_fuzz: %lu records: %lu samples, %lu deferred; %lu not read\n",
		       t->records, t->samples, t->deferred, t->unread);
	ksft_print_msg("bid_fuzz: %lu signals\n", t->signals);
	for (int i = 0; i < BID_STATUS_NR; i++)
		if (t->user[i])
			ksft_print_msg("bid_fuzz: %lu user frames of status %d\n", t->user[i], i);
}

/* Grace periods are what most of the time would go into. */
static int expedite_rcu(bool on)
{
	int fd = open("/sys/kernel/rcu_expedited", O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, on ? "1" : "0", 1) != 1)
		return bid_fail("rcu_expedited: %s", strerror(errno));
	return close(fd);
}

FIXTURE(fuzz)
{
};

FIXTURE_SETUP(fuzz)
{
	int ret = bid_ready();

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	totals = mmap(NULL, sizeof(*totals), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	ASSERT_NE(MAP_FAILED, totals);
	watched = mmap(NULL, WATCHED_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	ASSERT_NE(MAP_FAILED, watched);
	cgroup_dir = open("/sys/fs/cgroup", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	find_tracepoints();
	ASSERT_EQ(0, expedite_rcu(true)) TH_LOG("%s", bid_error);
	/* where a sample takes longer, fewer of them leave time for anything else */
	ASSERT_EQ(0, bid_sysctl_set("kernel/perf_event_max_sample_rate", 100000 / BID_SLOWER))
		TH_LOG("%s", bid_error);
}

FIXTURE_TEARDOWN(fuzz)
{
	EXPECT_EQ(0, expedite_rcu(false)) TH_LOG("%s", bid_error);
}

/* A million calls take the debug kernel the better part of an hour. */
TEST_F_TIMEOUT(fuzz, calls, 7200)
{
	__u64 calls = setting("BID_CALLS", 0), round = setting("BID_ROUND", ULLONG_MAX);
	__u64 deadline = bid_now_ns() + setting("BID_SECONDS", 15) * 1000000000ULL;
	pid_t workers[WORKERS];

	ASSERT_EQ(sizeof(seed), getrandom(&seed, sizeof(seed), 0));
	seed = setting("BID_SEED", seed);
	ksft_print_msg("bid_fuzz: BID_SEED=%#llx\n", (unsigned long long)seed);
	if (round != ULLONG_MAX) {
		EXPECT_EQ(0, run_round(round)) TH_LOG("%s", totals->error);
		print_totals();
		return;
	}
	for (int i = 0; i < WORKERS; i++) {
		workers[i] = fork();
		if (!workers[i])
			worker_main(calls, deadline);
		ASSERT_GT(workers[i], 0);
	}
	for (int i = 0; i < WORKERS; i++)
		waitpid(workers[i], NULL, 0);
	print_totals();
	EXPECT_EQ('\0', totals->error[0])
		TH_LOG("BID_SEED=%#llx, %s", (unsigned long long)seed, totals->error);
	EXPECT_GE(totals->calls, calls ? calls : 1000);
	EXPECT_GE(totals->opened, totals->opens / 20);
	EXPECT_GT(totals->samples, 0);
	EXPECT_GT(totals->user[PERF_BUILD_ID_OFFSET_RESOLVED], 0);
	EXPECT_EQ(0, bid_state_zero()) TH_LOG("%s", bid_error);
}

TEST_HARNESS_MAIN
