// SPDX-License-Identifier: GPL-2.0
/*
 * Files that are mapped, moved, protected and unmapped, rewritten, cut short,
 * punched, evicted and replaced, all at once, while every system call, page
 * fault and tick has a callchain into them. What a frame says must be the place
 * it was, and a build ID that the file had at some time; the samples must be as
 * many as the events counted; and afterwards nothing holds on to the files.
 *
 *   BID_SAMPLES=N	how many samples (default: 20000)
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kselftest_harness.h"
#include "bid_common.h"

#ifdef __x86_64__

#define VICTIMS		2	/* processes, each with a thread of each kind */
#define FILES		4
#define MAPS		6
#define PAGES		4
#define ID_SIZE		BID_SIZE_MAX
#define IDS		8	/* every byte of an ID is 1 to IDS */
#define PLACE		0x123	/* in the page: where the callchains point to */
#define RING_PAGES	1024
#define LIMIT_S		3600

static char dirs[2][PATH_MAX];	/* a file system of our own, and beside the test */

/* Shared with the victims: go on, or wait for the reader. */
static int *pause_order;

/* Files */

static void file_name(char *path, size_t size, unsigned int nr)
{
	snprintf(path, size, "%s/%u", dirs[nr % 2], nr % FILES);
}

static int write_file(const char *path)
{
	static __thread __u8 id;
	size_t page = sysconf(_SC_PAGESIZE);
	char image[PAGES * 4096];
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0755);

	id = id % IDS + 1;
	if (fd < 0 || page * PAGES > sizeof(image))
		return -1;
	bid_make_elf(image, PAGES * page, id);
	if (pwrite(fd, image, PAGES * page, 0) < 0)
		bid_fail("%s: %s", path, strerror(errno));
	return fd;
}

static void change_file(unsigned int what, unsigned int nr)
{
	size_t page = sysconf(_SC_PAGESIZE);
	char path[PATH_MAX + 16], next[PATH_MAX + 24];
	int fd;

	file_name(path, sizeof(path), nr);
	fd = open(path, O_RDWR | O_CLOEXEC);
	switch (what % 8) {
	case 0:
		ftruncate(fd, 0);
		break;
	case 1:
		ftruncate(fd, page);
		break;
	case 2:
		fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, page);
		break;
	case 3:
		fdatasync(fd);
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		break;
	case 4:
		snprintf(next, sizeof(next), "%s.new", path);
		close(write_file(next));
		rename(next, path);
		break;
	case 5:
		unlink(path);
		close(write_file(path));
		break;
	default:
		close(write_file(path));
	}
	if (fd >= 0)
		close(fd);
}

/* Mappings of one process, which its threads fight for */

static char *maps[MAPS];

static void *map_file(unsigned int nr, void *at)
{
	size_t page = sysconf(_SC_PAGESIZE);
	char path[PATH_MAX + 16];
	void *p = MAP_FAILED;
	int fd;

	file_name(path, sizeof(path), nr);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		p = mmap(at, PAGES * page, PROT_READ | PROT_EXEC,
			 MAP_PRIVATE | (at ? MAP_FIXED : 0), fd, 0);
		close(fd);
	}
	return p;
}

static void change_map(unsigned int what, unsigned int nr)
{
	size_t page = sysconf(_SC_PAGESIZE), size = PAGES * page;
	char *p = maps[nr % MAPS], *next = maps[(nr + 1) % MAPS];

	switch (what % 8) {
	case 0:
		munmap(p + page, page);
		break;
	case 1:
		munmap(p, size);
		break;
	case 2:
		mprotect(p + page, page, PROT_READ);
		break;
	case 3:
		madvise(p, size, what & 8 ? MADV_DONTNEED : MADV_PAGEOUT);
		break;
	case 4:
		mmap(p, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		break;
	case 5:
		mremap(p, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, next);
		break;
	default:
		map_file(nr + what, p);
	}
}

/* A system call from four of the mappings */
static void call_from_maps(unsigned int nr)
{
	size_t page = sysconf(_SC_PAGESIZE);
	struct bid_planted frames[4];
	__u64 ret[4];

	for (unsigned int i = 0; i < 4; i++)
		ret[i] = (__u64)maps[(nr + i) % MAPS] + (nr / 8 + i) % PAGES * page + PLACE;
	bid_plant(frames, ret, 4);
	if (nr % 8)
		bid_planted_call(frames, __NR_getppid, 0, 0, 0);
	else
		/* below the mappings: nobody else's */
		bid_planted_call(frames, __NR_munmap, (long)maps[0] - PAGES * page, page, 0);
}

enum { CALLS, MAPPINGS, CONTENT, THREADS };

static void *thread_main(void *kind)
{
	unsigned int nr = getpid() * 7;

	for (;;) {
		nr = nr * 1103515245 + 12345;
		if (__atomic_load_n(pause_order, __ATOMIC_RELAXED)) {
			usleep(1000);
			continue;
		}
		if ((long)kind == CALLS)
			call_from_maps(nr >> 16);
		else if ((long)kind == MAPPINGS)
			change_map(nr >> 16, nr >> 24);
		else
			change_file(nr >> 16, nr >> 24);
		if ((long)kind != CALLS)
			usleep(100);
	}
	return NULL;
}

static void victim_main(void)
{
	size_t page = sysconf(_SC_PAGESIZE);
	pthread_t thread;
	char *room;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	room = mmap(NULL, (MAPS + 1) * PAGES * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (room == MAP_FAILED)
		_exit(1);
	for (int i = 0; i < MAPS; i++) {
		maps[i] = room + (i + 1) * PAGES * page;
		map_file(i, maps[i]);
	}
	for (long kind = MAPPINGS; kind < THREADS; kind++)
		if (pthread_create(&thread, NULL, thread_main, (void *)kind))
			_exit(1);
	thread_main((void *)(long)CALLS);
}

/* Events, on each CPU, for everyone */

enum { IMMEDIATE, DEFERRED, LOCKED, FAULTS, CLOCK, TOOLS };

static struct figures {
	unsigned long	samples, planted, resolved, status[BID_STATUS_NR];
	unsigned long	throttled;
} figures;

/* Of our files, by the place in the page; only those that are resolved can be wrong. */
static int check_planted(const struct perf_sample_build_id_offset *e)
{
	size_t page = sysconf(_SC_PAGESIZE);

	if (e->offset % page != PLACE)
		return 0;
	figures.planted++;
	figures.status[e->build_id.status]++;
	if (e->build_id.status != PERF_BUILD_ID_OFFSET_RESOLVED)
		return 0;
	/* somebody else's code may have something at that place */
	if (e->build_id.data[0] > IDS || e->build_id.data[0] != e->build_id.data[1])
		return 0;
	figures.resolved++;
	if (e->build_id.size != ID_SIZE || e->offset / page >= PAGES)
		return bid_fail("an ID of %u bytes, offset %#llx", e->build_id.size,
				(unsigned long long)e->offset);
	for (int i = 0; i < ID_SIZE; i++)
		if (!e->build_id.data[i] || e->build_id.data[i] > IDS)
			return bid_fail("byte %d of an ID is %#x", i, e->build_id.data[i]);
	return 0;
}

static int each_sample(const struct bid_sample *s, void *arg)
{
	(void)arg;
	figures.samples++;
	for (__u64 i = 0; i < s->nr_entries; i++)
		if (check_planted(&s->entries[i]))
			return -1;
	return 0;
}

static int each_deferred(const struct bid_deferred *d, void *arg)
{
	(void)arg;
	for (__u64 i = 0; d->entries && i < d->nr; i++)
		if (check_planted(&d->entries[i]))
			return -1;
	return 0;
}

static int open_tools(struct bid_tool *t)
{
	struct perf_event_attr attr[TOOLS];
	__u64 type = BID_CHAIN | BID_ORIGIN;
	int ret = bid_attr_tracepoint(&attr[IMMEDIATE], "raw_syscalls/sys_enter", type);

	if (!ret)
		ret = bid_attr_tracepoint(&attr[LOCKED], "mmap_lock/mmap_lock_acquire_returned",
					  type);
	if (ret)
		return ret;
	attr[DEFERRED] = attr[IMMEDIATE];
	bid_attr_init(&attr[FAULTS], PERF_COUNT_SW_PAGE_FAULTS, type | BID_IP);
	bid_attr_init(&attr[CLOCK], PERF_COUNT_SW_CPU_CLOCK, type | BID_IP);
	for (int i = 0; i < TOOLS; i++) {
		attr[i].read_format = PERF_FORMAT_LOST;
		attr[i].exclude_callchain_kernel = 1;
		if (i == DEFERRED || i == CLOCK)
			bid_attr_defer(&attr[i]);
		ret = bid_tool_open(&t[i], &attr[i], NULL, -1, BID_EACH_CPU, RING_PAGES);
		if (ret)
			return ret;
		t[i].check.pid = -1;
		t[i].check.flags = BID_LOOSE | BID_EXITS | BID_UNREADABLE | BID_PLANTED |
				   BID_MADE_UP;
		t[i].each = each_sample;
		t[i].each_deferred = each_deferred;
	}
	return 0;
}

/* A throttled event counts what it takes no sample of. */
static int record(const struct perf_event_header *hdr, void *tool)
{
	figures.throttled += hdr->type == PERF_RECORD_THROTTLE;
	return bid_tool_record(hdr, tool);
}

static int drain(struct bid_tool *t)
{
	for (int i = 0; i < TOOLS; i++)
		for (size_t cpu = 0; cpu < t[i].nr; cpu++)
			if (bid_drain(&t[i].e[cpu], record, &t[i]))
				return -1;
	return 0;
}

static bool nearly_full(const struct bid_tool *t)
{
	bool full = false;

	for (int i = 0; i < TOOLS; i++)
		for (size_t cpu = 0; cpu < t[i].nr; cpu++) {
			const struct bid_event *e = &t[i].e[cpu];

			full |= e->page->data_head - e->page->data_tail > e->data_size / 4;
		}
	return full;
}

static int run(struct bid_tool *t, unsigned long samples)
{
	__u64 deadline = bid_now_ns() + LIMIT_S * 1000000000ull;
	unsigned long said = 0;

	while (figures.samples < samples) {
		if (figures.samples - said >= 100000) {
			said = figures.samples;
			ksft_print_msg("bid_torture: %lu samples\n", said);
		}
		__atomic_store_n(pause_order, nearly_full(t), __ATOMIC_RELAXED);
		if (drain(t))
			return -1;
		if (bid_now_ns() > deadline)
			return bid_fail("%lu samples after %d s", figures.samples, LIMIT_S);
		usleep(2000);
	}
	return 0;
}

/* An event that takes a sample each time: as many as it counted, but for the lost. */
static int check_counts(const struct bid_tool *t)
{
	struct {
		__u64 value, lost;
	} count;
	unsigned long counted = 0, lost = 0;
	const struct bid_stats *st = &t->check.stats;

	for (size_t cpu = 0; cpu < t->nr; cpu++) {
		if (read(t->e[cpu].fd, &count, sizeof(count)) != sizeof(count))
			return bid_fail("read: %s", strerror(errno));
		counted += count.value;
		lost += count.lost;
	}
	if (st->lost > lost)
		return bid_fail("%lu lost by the rings, %lu by the events", st->lost, lost);
	if (!figures.throttled && counted != st->samples + lost)
		return bid_fail("%lu counted, %lu samples, %lu lost", counted, st->samples, lost);
	return 0;
}

FIXTURE(torture)
{
	struct bid_tool t[TOOLS];
	pid_t victims[VICTIMS];
	bool mounted;
};

FIXTURE_SETUP(torture)
{
	char path[PATH_MAX + 16];
	int ret = bid_deferred_ready();

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	snprintf(dirs[0], sizeof(dirs[0]), "/tmp/bid_torture.XXXXXX");
	ASSERT_TRUE(!!mkdtemp(dirs[0]));
	self->mounted = !mount("bid", dirs[0], "tmpfs", 0, NULL);
	ASSERT_TRUE(self->mounted);
	ASSERT_EQ(0, bid_helper_path(path, PATH_MAX, ".")) TH_LOG("%s", bid_error);
	snprintf(dirs[1], sizeof(dirs[1]), "%.4000s/bid_torture.XXXXXX", path);
	ASSERT_TRUE(!!mkdtemp(dirs[1]));
	for (unsigned int i = 0; i < FILES; i++) {
		file_name(path, sizeof(path), i);
		ASSERT_EQ(0, close(write_file(path))) TH_LOG("%s", path);
	}
	pause_order = mmap(NULL, sizeof(*pause_order), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, pause_order);
	*pause_order = 1;
	ASSERT_EQ(0, bid_sysctl_set("kernel/perf_event_max_sample_rate", 10000000));
	for (int i = 0; i < VICTIMS; i++) {
		self->victims[i] = fork();
		if (!self->victims[i])
			victim_main();
		ASSERT_GT(self->victims[i], 0);
	}
}

static void end_victims(pid_t *victims)
{
	for (int i = 0; i < VICTIMS; i++) {
		if (victims[i] <= 0)
			continue;
		kill(victims[i], SIGKILL);
		waitpid(victims[i], NULL, 0);
		victims[i] = 0;
	}
}

/* The file system goes without being told to let go. */
static int unmount(void)
{
	for (int i = 0; i < 500 && umount(dirs[0]); i++) {
		if (errno != EBUSY)
			return bid_fail("umount: %s", strerror(errno));
		usleep(10000);
	}
	return rmdir(dirs[0]) ? bid_fail("%s: %s", dirs[0], strerror(errno)) : 0;
}

FIXTURE_TEARDOWN(torture)
{
	char path[PATH_MAX + 16];

	end_victims(self->victims);
	for (int i = 0; i < TOOLS; i++)
		bid_tool_close(&self->t[i]);
	if (self->mounted)
		EXPECT_EQ(0, unmount()) TH_LOG("%s", bid_error);
	for (unsigned int i = 0; i < FILES; i++) {
		file_name(path, sizeof(path), i);
		unlink(path);
		strcat(path, ".new");
		unlink(path);
	}
	rmdir(dirs[1]);
	EXPECT_EQ(0, bid_state_zero()) TH_LOG("%s", bid_error);
}

TEST_F_TIMEOUT(torture, files_and_mappings, LIMIT_S + 60)
{
	const char *wanted = getenv("BID_SAMPLES");
	struct bid_tool *t = self->t;
	int ret = open_tools(t);

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	for (int i = 0; i < TOOLS; i++)
		ASSERT_EQ(0, bid_tool_enable(&t[i])) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, run(t, wanted ? strtoul(wanted, NULL, 0) : 20000)) TH_LOG("%s", bid_error);
	end_victims(self->victims);
	for (int i = 0; i < TOOLS; i++)
		ASSERT_EQ(0, bid_tool_disable(&t[i])) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, drain(t)) TH_LOG("%s", bid_error);

	TH_LOG("%lu samples, %lu frames in the files, %lu resolved", figures.samples,
	       figures.planted, figures.resolved);
	for (int i = 0; i < BID_STATUS_NR; i++)
		if (figures.status[i])
			TH_LOG("%lu of them with status %d", figures.status[i], i);
	EXPECT_GT(figures.resolved, 0);
	EXPECT_EQ(0, check_counts(&t[IMMEDIATE])) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, check_counts(&t[LOCKED])) TH_LOG("%s", bid_error);
	for (ret = 0; ret < TOOLS; ret++)
		EXPECT_GT(t[ret].check.stats.samples, 0) TH_LOG("tool %d", ret);
	EXPECT_GT(t[DEFERRED].check.stats.deferred, 0);
}

#else

TEST(no_callchains)
{
	SKIP(return, "callchains are only made up on x86-64");
}

#endif

TEST_HARNESS_MAIN
