// SPDX-License-Identifier: GPL-2.0
/*
 * Files that lie: ELF headers and notes with anything anywhere, offsets around
 * every limit, headers that overlap each other, files that are mostly holes and
 * nearly as long as a file can be, mapped where nothing is. A frame in one is
 * resolved to a build ID that is in the file, or says that there is none.
 *
 * All files follow from a number that is printed; BID_SEED=N repeats it.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kselftest_harness.h"
#include "bid_chance.h"
#include "bid_common.h"

#ifdef __x86_64__

#define FILES		400
#define PAGES		3
#define NOTE_AT		256
#define PLACE		0x123

static char image[PAGES * 4096];
static const char *mapping;
static __u64 mapped_from;
static unsigned long status[2][BID_STATUS_NR];

/* A number as somebody would choose it who wants to break something. */
static __u64 odd_number(void)
{
	static const __u64 limits[] = {
		0, 1, 20, 24, 64, 255, 4095, 4096, sizeof(image), 0x7fffffff, 0x80000000,
		0xffffffff, 0x7fffffffffffffffULL, 0x8000000000000000ULL, -1ULL, -4096ULL,
	};
	__u64 n = limits[below(BID_ARRAY_SIZE(limits))];

	return n + below(5) - 2;
}

/* One thing that is not as it should be. */
static void spoil(void)
{
	Elf64_Ehdr *eh = (Elf64_Ehdr *)image;
	Elf64_Phdr *ph = (Elf64_Phdr *)(image + sizeof(*eh) + below(4) * sizeof(*ph));
	Elf64_Nhdr *nh = (Elf64_Nhdr *)(image + NOTE_AT);

	switch (below(12)) {
	case 0:
		eh->e_phoff = odd_number();
		break;
	case 1:
		eh->e_phnum = odd_number();
		break;
	case 2:
		eh->e_phentsize = odd_number();
		break;
	case 3:
		ph->p_offset = odd_number();
		break;
	case 4:
		ph->p_filesz = odd_number();
		break;
	case 5:
		ph->p_align = odd_number();
		break;
	case 6:
		ph->p_type = PT_NOTE;
		break;
	case 7:
		nh->n_namesz = odd_number();
		break;
	case 8:
		nh->n_descsz = odd_number();
		break;
	case 9:
		eh->e_ident[EI_CLASS] = below(4);
		break;
	case 10:
		eh->e_phnum = below(8);
		break;
	default:
		image[below(NOTE_AT + 64)] ^= 1 << below(8);
	}
}

/* Nearly as long as it can be, or too short for what it says. */
static void odd_length(int fd)
{
	static const __u64 lengths[] = {
		0, 1, 63, 64, 300, 4096, sizeof(image), 1ULL << 40, 1ULL << 62,
		0x7fffffffffffefffULL,
	};

	ftruncate(fd, lengths[below(BID_ARRAY_SIZE(lengths))]);
}

static bool in_image(const struct perf_build_id *id)
{
	return memmem(image, sizeof(image), id->data, id->size);
}

/* What became of the address; everything else is our own code. */
static int check_frame(const struct perf_sample_build_id_offset *e, bool deferred)
{
	const struct perf_build_id *id = &e->build_id;

	status[deferred][id->status]++;
	switch (id->status) {
	case PERF_BUILD_ID_OFFSET_RESOLVED:
		if (e->offset != mapped_from + PLACE)
			return bid_fail("offset %#llx", (unsigned long long)e->offset);
		return in_image(id) ? 0 : bid_fail("an ID of %u bytes that is not in the file",
						   id->size);
	case PERF_BUILD_ID_OFFSET_NO_BUILD_ID:
	case PERF_BUILD_ID_OFFSET_BUSY:
		break;
	case PERF_BUILD_ID_OFFSET_FAULT:
		if (deferred)
			return bid_fail("not read in");
		break;
	default:
		return bid_fail("status %u", id->status);
	}
	return e->offset == (__u64)mapping + PLACE ? 0 :
	       bid_fail("the address became %#llx", (unsigned long long)e->offset);
}

static int each_deferred(const struct bid_deferred *d, void *arg)
{
	(void)arg;
	return d->nr == 2 ? check_frame(&d->entries[1], true) :
			    bid_fail("%llu frames", (unsigned long long)d->nr);
}

static int each_immediate(const struct bid_sample *s, void *arg)
{
	(void)arg;
	return s->nr_entries == 3 ? check_frame(&s->entries[2], false) :
				    bid_fail("%llu entries", (unsigned long long)s->nr_entries);
}

FIXTURE(hostile)
{
	struct bid_tool immediate, deferred;
	int fd;
};

FIXTURE_SETUP(hostile)
{
	struct perf_event_attr attr;
	int ret = bid_deferred_ready();

	if (!ret)
		ret = bid_attr_tracepoint(&attr, "syscalls/sys_enter_getppid",
					  BID_BITS | PERF_SAMPLE_IP | BID_ORIGIN);
	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	self->fd = memfd_create("bid_hostile", MFD_CLOEXEC);
	ASSERT_GE(self->fd, 0);
	attr.exclude_callchain_kernel = 1;
	ASSERT_EQ(0, bid_tool_open(&self->immediate, &attr, NULL, 0, -1, BID_RING_PAGES))
		TH_LOG("%s", bid_error);
	bid_attr_defer(&attr);
	ASSERT_EQ(0, bid_tool_open(&self->deferred, &attr, NULL, 0, -1, BID_RING_PAGES))
		TH_LOG("%s", bid_error);
	self->immediate.check.flags = BID_MADE_UP;
	self->deferred.check.flags = BID_MADE_UP;
	self->immediate.each = each_immediate;
	self->deferred.each_deferred = each_deferred;
	ASSERT_EQ(0, bid_tool_enable(&self->immediate)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_tool_enable(&self->deferred)) TH_LOG("%s", bid_error);
}

FIXTURE_TEARDOWN(hostile)
{
	bid_tool_close(&self->deferred);
	bid_tool_close(&self->immediate);
	close(self->fd);
	EXPECT_EQ(0, bid_state_zero()) TH_LOG("%s", bid_error);
}

/* A system call that seems to be called from the file */
static int call_from(int fd)
{
	static const __u64 places[] = { 0, 4096, 1ULL << 32, 1ULL << 61, 0x7ffffffffffff000ULL };
	size_t page = sysconf(_SC_PAGESIZE);
	struct bid_planted frame;
	__u64 ret;

	mapped_from = places[below(BID_ARRAY_SIZE(places))];
	mapping = mmap(NULL, page, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, mapped_from);
	if (mapping == MAP_FAILED)
		return errno == EOVERFLOW || errno == EINVAL ? 0 :
		       bid_fail("mmap at %#llx: %s", (unsigned long long)mapped_from,
				strerror(errno));
	ret = (__u64)mapping + PLACE;
	bid_plant(&frame, &ret, 1);
	bid_planted_call(&frame, __NR_getppid, 0, 0, 0);
	munmap((void *)mapping, page);
	return 0;
}

TEST_F_TIMEOUT(hostile, files, 2 * BID_TIMEOUT_S)
{
	const char *seed = getenv("BID_SEED");
	int ret = 0;

	ASSERT_EQ(sizeof(chance), getrandom(&chance, sizeof(chance), 0));
	if (seed)
		chance = strtoull(seed, NULL, 0);
	chance |= 1;
	TH_LOG("BID_SEED=%#llx", (unsigned long long)chance);
	for (int i = 0; !ret && i < FILES; i++) {
		bid_make_elf(image, sizeof(image), 1 + below(200));
		for (int n = below(4); n; n--)
			spoil();
		if (ftruncate(self->fd, 0) ||
		    pwrite(self->fd, image, sizeof(image), 0) != sizeof(image))
			ret = bid_fail("writing the file: %s", strerror(errno));
		if (below(4) == 0)
			odd_length(self->fd);
		ret = ret ?: call_from(self->fd);
		ret = ret ?: bid_tool_drain(&self->immediate);
		ret = ret ?: bid_tool_drain(&self->deferred);
		if (ret)
			TH_LOG("file %d", i);
	}
	EXPECT_EQ(0, ret) TH_LOG("%s", bid_error);
	for (int i = 0; i < BID_STATUS_NR; i++)
		if (status[0][i] || status[1][i])
			TH_LOG("status %d: %lu immediate, %lu deferred", i, status[0][i],
			       status[1][i]);
	EXPECT_GT(status[1][PERF_BUILD_ID_OFFSET_RESOLVED], FILES / 10);
	EXPECT_GT(status[1][PERF_BUILD_ID_OFFSET_NO_BUILD_ID], FILES / 10);
}

#else

TEST(no_callchains)
{
	SKIP(return, "callchains are only made up on x86-64");
}

#endif

TEST_HARNESS_MAIN
