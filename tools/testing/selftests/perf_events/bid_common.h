/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the bid_* tests share: events and their rings, a parser of records that
 * trusts nothing, the memory map of a process with the build IDs of its files,
 * the check of every (build ID, file offset) entry against that map, and a book
 * of the cookies that join samples to deferred callchains.
 *
 * Functions that can fail return 0 or a negative number and say why in
 * bid_error[].
 */
#ifndef BID_COMMON_H
#define BID_COMMON_H

#include <linux/const.h>
#include <linux/perf_event.h>
#include <linux/perf_build_id.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#ifdef __x86_64__
#include <asm/perf_regs.h>
#endif

#include "kselftest.h"

#define BID_IP		PERF_SAMPLE_BUILD_ID_OFFSET
#define BID_CHAIN	PERF_SAMPLE_CALLCHAIN_BUILD_ID_OFFSET
#define BID_BITS	(BID_IP | BID_CHAIN)

#define BID_SIZE_MAX		PERF_BUILD_ID_SIZE_MAX
#define BID_MAX_ENTRIES		2046
#define BID_RECORD_MAX		65528	/* the largest multiple of 8 in a u16 */
#define BID_STATUS_NR		PERF_BUILD_ID_OFFSET_MAX

/*
 * Times: a kernel that checks itself takes so many times as long for everything.
 * Deadlines tell a kernel that does nothing from a machine that is busy with
 * something else: only a failure takes that long.
 */
#ifndef BID_SLOWER
#define BID_SLOWER		1
#endif
#define BID_PERIOD_NS		(500000 * BID_SLOWER)
#define BID_DEADLINE_S		(100 * BID_SLOWER)
#define BID_TIMEOUT_S		(240 * BID_SLOWER)	/* of a test: more than a deadline */
#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT	BID_TIMEOUT_S
#define BID_RING_PAGES		64
#define BID_CPUS_MAX		64

/* The masks of PERF_SAMPLE_REGS_USER for the instruction pointer alone and for all. */
#ifdef __x86_64__
#define BID_REG_IP		_BITULL(PERF_REG_X86_IP)
#define BID_REGS_ALL		((_BITULL(PERF_REG_X86_64_MAX) - 1) & \
				 ~(_BITULL(PERF_REG_X86_DS) | _BITULL(PERF_REG_X86_ES) | \
				   _BITULL(PERF_REG_X86_FS) | _BITULL(PERF_REG_X86_GS)))
#else
#define BID_REG_IP		0
#define BID_REGS_ALL		0ULL	/* which there are is not known */
#endif

#define ULL(x)			((unsigned long long)(x))
#define BID_ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

extern char bid_error[512];
int __printf(1, 2) bid_fail(const char *fmt, ...);

/* 0: root, and the kernel has the bits; 1: skip, bid_error says why; < 0: broken */
int bid_ready(void);
/*
 * Samples are taken with interrupts disabled, where a PREEMPT_RT kernel does not
 * take the mmap lock: files that it does not remember cannot be resolved at once.
 */
bool bid_preempt_rt(void);

/* Events */

struct bid_event {
	struct perf_event_attr		attr;
	int				fd;
	__u64				id;
	struct perf_event_mmap_page	*page;
	size_t				data_size;
};

typedef int (*bid_record_fn)(const struct perf_event_header *hdr, void *arg);

void bid_attr_init(struct perf_event_attr *attr, __u64 config, __u64 sample_type);
/* Has samples of a clock told apart that share an interrupt: see bid_resolved_percent(). */
void bid_attr_apart(struct perf_event_attr *attr);
int bid_attr_tracepoint(struct perf_event_attr *attr, const char *name, __u64 sample_type);
int bid_open(const struct perf_event_attr *attr, pid_t pid, int cpu, int group_fd);
int bid_open_errno(const struct perf_event_attr *attr, pid_t pid, int cpu, int group_fd);
int bid_event_open(struct bid_event *e, const struct perf_event_attr *attr,
		   pid_t pid, int cpu, int group_fd, size_t pages);
int bid_event_from_fd(struct bid_event *e, const struct perf_event_attr *attr,
		      int fd, size_t pages);
void bid_event_close(struct bid_event *e);
int bid_event_enable(struct bid_event *e);
int bid_event_disable(struct bid_event *e);
int bid_drain(struct bid_event *e, bid_record_fn fn, void *arg);

/* Samples */

struct bid_sample {
	const struct perf_event_header			*hdr;
	__u64						identifier;
	__u64						ip;
	__u64						time;
	__u32						pid, tid;
	__u64						id;
	__u32						cpu;
	const __u64					*read;
	size_t						nr_read;	/* in u64 */
	const __u64					*ips;
	__u64						nr_ips;
	__u32						raw_size;
	__u64						nr_branches;
	__u64						regs_user_abi;
	const __u64					*regs_user;	/* NULL: none */
	__u64						user_ip;	/* 0: not known */
	__u64						stack_size;
	const void					*stack;
	const struct perf_sample_build_id_offset	*bid;
	const struct perf_sample_build_id_offset	*entries;
	__u64						nr_entries;
};

int bid_parse_sample(const struct perf_event_header *hdr,
		     const struct perf_event_attr *attr, struct bid_sample *s);
/* The cookie that stands for the user part; 0: there is none. */
__u64 bid_sample_cookie(const struct bid_sample *s);

/* Deferred callchains, in the form with addresses or with entries */

struct bid_deferred {
	const struct perf_event_header			*hdr;
	__u64						cookie;
	__u64						nr;
	const __u64					*ips;
	const struct perf_sample_build_id_offset	*entries;
	__u32						pid, tid;
	__u64						time;
	__u64						id, stream_id, identifier;
	__u32						cpu;
};

int bid_parse_deferred(const struct perf_event_header *hdr,
		       const struct perf_event_attr *attr, struct bid_deferred *d);

/* Build IDs and maps */

/* The size of the ID; 0: there is none; < 0: the file could not be read. */
int bid_file_build_id(int fd, __u8 *id);
int bid_image_build_id(const void *image, size_t size, __u8 *id);

enum bid_map_kind {
	BID_MAP_ANON,
	BID_MAP_FILE,
	BID_MAP_SHARED_ANON,	/* a file inside the kernel only */
	BID_MAP_VDSO,
	BID_MAP_SPECIAL,
};

struct bid_map {
	__u64			start, end;
	__u64			offset;		/* in the file, of start */
	enum bid_map_kind	kind;
	bool			exec;
	int			id_size;
	__u8			id[BID_SIZE_MAX];
	unsigned int		major, minor;
	unsigned long		inode;
	char			path[128];
};

#define BID_MAPS_MAX		256

struct bid_maps {
	size_t		nr;
	struct bid_map	map[BID_MAPS_MAX];
};

int bid_maps_read(struct bid_maps *maps, pid_t pid);	/* 0: ourselves */
const struct bid_map *bid_maps_find(const struct bid_maps *maps, __u64 addr);
const struct bid_map *bid_maps_exec(const struct bid_maps *maps, const char *name);

/* The check */

#define BID_NO_KERNEL	0x1	/* nothing of the kernel may be seen */
#define BID_LOOSE	0x2	/* the maps changed while the samples were taken */
#define BID_PLANTED	0x4	/* return addresses may look like anything */
#define BID_DEEP	0x8	/* chains may be longer than what a record holds */
#define BID_EXITS	0x10	/* tasks exit, and then defer nothing */
#define BID_UNREADABLE	0x20	/* files may be impossible to read, memory short */
#define BID_MADE_UP	0x40	/* files are of bid_make_elf(), with any byte as their ID */

struct bid_stats {
	unsigned long	samples;
	unsigned long	deferred;
	unsigned long	lost, lost_records;
	unsigned long	others;
	unsigned long	clamped;
	unsigned long	user[BID_STATUS_NR];	/* user frames by status */
	unsigned long	kernel;
	unsigned long	file_frames, file_resolved;	/* but of samples that share */
	unsigned long	shared;
	unsigned long	focus[BID_STATUS_NR];	/* frames in the focus */
	unsigned long	focus_frames;
};

struct bid_check {
	const struct perf_event_attr	*attr;
	const struct bid_maps		*maps;
	pid_t				pid;	/* whose maps; 0: everyone's */
	const pid_t			*pids;	/* ... or theirs */
	size_t				nr_pids;
	unsigned int			flags;
	const struct bid_map		*focus;
	int				(*each)(const struct bid_sample *s, void *arg);
	int				(*each_deferred)(const struct bid_deferred *d, void *arg);
	void				*each_arg;
	__u64				last[BID_CPUS_MAX];	/* by CPU: where its task was */
	bool				shares;	/* the sample has its interrupt after another */
	struct bid_stats		stats;
};

int bid_check_entry(const struct perf_sample_build_id_offset *e);
int bid_check_sample(struct bid_check *c, const struct bid_sample *s);
int bid_check_deferred(struct bid_check *c, const struct bid_deferred *d);
/* Does the entry, of a task with this pid and resolved at leisure, stand for ip? */
int bid_check_frame(const struct bid_check *c, __u32 pid,
		    const struct perf_sample_build_id_offset *e, __u64 ip);
int bid_check_record(const struct perf_event_header *hdr, void *check);
bool bid_is_context(__u64 ip);
/*
 * Per cent of the frames in files with a build ID. After bid_attr_apart(), those of
 * samples that share an interrupt with the one before on their CPU do not count: a
 * timer can expire again while a sample is taken, as it does in a virtual machine
 * that did not run for a while, and only the first can look at the address space.
 * The task has not gone on in between, so that its registers, a loop's counter among
 * them, are the same.
 */
#define BID_MOST	95

unsigned int bid_resolved_percent(const struct bid_stats *st);
const char *bid_resolved_text(const struct bid_stats *st);

/* Runs load(arg) and checks what comes until *counter reaches want. */
int bid_collect(struct bid_event *e, struct bid_check *c, void (*load)(void *arg),
		void *arg, const unsigned long *counter, unsigned long want);
/* The same for a number of rings of one kind. */
int bid_collect_many(struct bid_event *e, size_t nr, struct bid_check *c,
		     void (*load)(void *arg), void *arg,
		     const unsigned long *counter, unsigned long want);
/* ... and for a number of rings whose records fn looks at. */
int bid_collect_fn(struct bid_event *e, size_t nr, bid_record_fn fn, void *fn_arg,
		   void (*load)(void *arg), void *arg,
		   const unsigned long *counter, unsigned long want);

/*
 * Cookies: what was said of each in samples and in deferred callchains. Of
 * records there are two kinds, BID_PLAIN and BID_FULL.
 */

enum { BID_PLAIN, BID_FULL, BID_FORMS };

struct bid_cookie {
	__u64					cookie;
	__u32					pid, tid;
	__u32					cpu, record_cpu;
	__u64					time;	/* of the first sample */
	unsigned int				samples;
	unsigned int				strays;	/* ... with another user address */
	unsigned int				records[BID_FORMS];
	__u64					nr[BID_FORMS];
	__u64					ip;	/* of the user part; 0: not known */
	__u64					first_ip;
	struct perf_sample_build_id_offset	first;
};

struct bid_cookies {
	struct bid_cookie	*slot;
	size_t			slots, nr;
};

struct bid_pairs {
	unsigned long	cookies, samples;
	unsigned long	pairs;		/* cookies with a sample and one record */
	unsigned long	unanswered;	/* ... with a sample and no record */
	unsigned long	unasked;	/* ... with a record and no sample */
	unsigned long	repeated;	/* ... with several records of a kind */
	unsigned long	agree;		/* the first frame is the sample's user address */
	unsigned long	differ;
	unsigned long	strays;		/* samples with another user address than the first */
	unsigned long	moved;		/* the record is from another CPU */
	unsigned long	last;		/* unanswered, and the last of their task */
	unsigned long	in_exec;	/* cookies that differ or have strays, of tasks in execs */
};

/*
 * A tool: events of one kind, for one task or for all, on one CPU or on each,
 * all with a ring of their own, a judge of their records and a book of cookies.
 */

#define BID_EXECS	65536
#define BID_EACH_CPU	-2
/* What makes a record's origin known; with sample_id_all, of deferred ones too. */
#define BID_ORIGIN	(PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | \
			 PERF_SAMPLE_CPU)

struct bid_tool {
	struct perf_event_attr	attr;
	struct bid_event	e[BID_CPUS_MAX];
	size_t			nr;
	struct bid_check	check;
	struct bid_cookies	book;
	pid_t			only;		/* whose cookies; 0: everyone's */
	/* by task: it has become another program meanwhile (or one with its low bits) */
	const bool		*execs;
	int			(*each)(const struct bid_sample *s, void *arg);
	int			(*each_deferred)(const struct bid_deferred *d, void *arg);
	void			*each_arg;
};

/* As bid_ready(), and the kernel can unwind user stacks later. */
int bid_deferred_ready(void);
void bid_attr_defer(struct perf_event_attr *attr);
/* A tool without events, for records that come from elsewhere. */
int bid_tool_init(struct bid_tool *t, const struct perf_event_attr *attr,
		  const struct bid_maps *maps);
int bid_tool_open(struct bid_tool *t, const struct perf_event_attr *attr,
		  const struct bid_maps *maps, pid_t pid, int cpu, size_t pages);
void bid_tool_close(struct bid_tool *t);
int bid_tool_enable(struct bid_tool *t);
int bid_tool_disable(struct bid_tool *t);
int bid_tool_record(const struct perf_event_header *hdr, void *tool);
int bid_tool_drain(struct bid_tool *t);
/* form: what every cookie must have one record of. */
void bid_tool_pairs(struct bid_tool *t, int form, struct bid_pairs *pairs);
/* Every sample has its one record, and what they say of the user address agrees. */
int bid_tool_paired(struct bid_tool *t, int form, unsigned long want);

/* A child of ours that waits for the first word before it runs fn(). */
struct bid_task {
	pid_t	pid;
	int	in, out;
};

int bid_task_fork(struct bid_task *t, void (*fn)(void *arg), void *arg);
int bid_task_tell(struct bid_task *t);
int bid_task_listen(struct bid_task *t);
int bid_task_wait(struct bid_task *t, int *status);
void bid_task_kill(struct bid_task *t);

/* Loads */

void bid_load_user(void *arg);		/* a few nested calls */
void bid_load_kernel(void *arg);	/* the same, and time in system calls */
void bid_load_faults(void *arg);	/* page faults */
void bid_load_sleep(void *arg);		/* context switches */
__u64 bid_now_ns(void);

/* Threads, until *(bool *)stop: one that causes NMIs, one that changes the address space */
void *bid_thread_nmis(void *stop);
void *bid_thread_map_and_unmap(void *stop);
int bid_quiet_console(bool quiet);

/* A loop that the compiler leaves alone and that touches nothing. */
static inline void bid_spin(unsigned long n)
{
	for (; n; n--)
		__asm__ volatile("");
}

/*
 * Spins with the frame pointer on frames; between these labels the unwinder
 * sees no others (x86-64, bid_stack.c).
 */
void bid_planted_spin(void *frames, unsigned long n);
extern const char bid_planted_loop[], bid_planted_end[];

/* A file whose build ID is 20 times the byte id, headers and note in the first page. */
void bid_make_elf(void *image, size_t size, __u8 id);

/*
 * A system call with a callchain that was made up: the caller's frames, which
 * must be on its stack, in the order of their addresses (x86-64, bid_tool.c).
 */
struct bid_planted {
	__u64	next;
	__u64	ret;
};

void bid_plant(struct bid_planted *frames, const __u64 *ret, size_t nr);
long bid_planted_call(const struct bid_planted *frames, long nr, long a, long b, long c);
extern const char bid_planted_return[];

/* What bid_lib.so has */
typedef void (*bid_lib_spin_fn)(unsigned long n);
typedef void (*bid_lib_call_fn)(void (*fn)(void *arg), void *arg);
void bid_lib_spin(unsigned long n);
void bid_lib_call(void (*fn)(void *arg), void *arg);

/* Children and files beside the test program */

struct bid_child {
	pid_t	pid;
	int	go;		/* written: the child execs */
	int	ready;		/* read: the program runs */
};

int bid_helper_path(char *path, size_t size, const char *name);
int bid_child_fork(struct bid_child *c, const char *path, int exec_fd, const char *next);
int bid_child_exec(struct bid_child *c);	/* lets it go on, waits till it is ready */
int bid_child_wait_ready(struct bid_child *c);
void bid_child_kill(struct bid_child *c);
int bid_copy_file(int to, const char *from);

/*
 * Nothing is left of any event: counts, buffers, hooks. Where the kernel has no
 * debugfs to tell, nothing is said.
 */
int bid_state_zero(void);

/* Sysctls: put back when the test program ends, whatever happens */

int bid_sysctl_get(const char *name, long *value);
int bid_sysctl_set(const char *name, long value);
/* The number of events that hold callchain buffers is zero if this works. */
int bid_callchain_buffers_free(void);

#endif /* BID_COMMON_H */
