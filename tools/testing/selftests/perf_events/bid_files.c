// SPDX-License-Identifier: GPL-2.0
/*
 * The build ID of the right file at the right offset, whatever the file and
 * however it is mapped: linked in different ways, hand-made down to the bytes,
 * deleted, in a memfd, a library, a copy of code in anonymous memory, the vDSO.
 */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "kselftest_harness.h"
#include "bid_common.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define ALL_FOUR (BID_BITS | PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN)
#define MEG (1024 * 1024UL)

static struct bid_maps maps;

/* A memfd, executable whatever the default. */
static int make_memfd(void)
{
	int fd = memfd_create("bid", MFD_CLOEXEC | MFD_EXEC);

	return fd < 0 && errno == EINVAL ? memfd_create("bid", MFD_CLOEXEC) : fd;
}

/* Programs linked in different ways, sampled while they run. */

enum program_from {
	FROM_PATH,
	FROM_DELETED,
	FROM_MEMFD,
};

FIXTURE(program)
{
	struct bid_child child;
	struct bid_event e;
};

FIXTURE_VARIANT(program)
{
	const char *name;
	int id_size;
	enum program_from from;
	unsigned int segments;		/* executable ones */
};

FIXTURE_VARIANT_ADD(program, sha1) {
	.name = "bid_sha1", .id_size = 20,
};

FIXTURE_VARIANT_ADD(program, md5) {
	.name = "bid_md5", .id_size = 16,
};

FIXTURE_VARIANT_ADD(program, eight_bytes) {
	.name = "bid_id8", .id_size = 8,
};

FIXTURE_VARIANT_ADD(program, five_bytes) {
	.name = "bid_id5", .id_size = 5,
};

FIXTURE_VARIANT_ADD(program, one_byte) {
	.name = "bid_id1", .id_size = 1,
};

FIXTURE_VARIANT_ADD(program, no_build_id) {
	.name = "bid_none", .id_size = 0,
};

/* longer than the kernel takes */
FIXTURE_VARIANT_ADD(program, too_long) {
	.name = "bid_id24", .id_size = 0,
};

FIXTURE_VARIANT_ADD(program, pie) {
	.name = "bid_pie", .id_size = 20,
};

FIXTURE_VARIANT_ADD(program, not_pie) {
	.name = "bid_nopie", .id_size = 20,
};

FIXTURE_VARIANT_ADD(program, code_with_headers) {
	.name = "bid_noseparate", .id_size = 20,
};

FIXTURE_VARIANT_ADD(program, two_code_segments) {
	.name = "bid_far", .id_size = 20, .segments = 2,
};

FIXTURE_VARIANT_ADD(program, deleted) {
	.name = "bid_sha1", .id_size = 20, .from = FROM_DELETED,
};

FIXTURE_VARIANT_ADD(program, memfd) {
	.name = "bid_md5", .id_size = 16, .from = FROM_MEMFD,
};

FIXTURE_SETUP(program)
{
	char path[PATH_MAX], copy[] = "/tmp/bid_copy.XXXXXX";
	int ret = bid_ready(), fd = -1;

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_helper_path(path, sizeof(path), variant->name)) TH_LOG("%s", bid_error);
	if (variant->from == FROM_DELETED) {
		fd = mkostemp(copy, O_CLOEXEC);
		ASSERT_GE(fd, 0);
		ASSERT_EQ(0, fchmod(fd, 0700));
	} else if (variant->from == FROM_MEMFD) {
		fd = make_memfd();
		ASSERT_GE(fd, 0);
	}
	if (fd >= 0)
		ASSERT_EQ(0, bid_copy_file(fd, path)) TH_LOG("%s", bid_error);
	if (variant->from == FROM_DELETED) {
		close(fd);
		strcpy(path, copy);
	}
	ASSERT_EQ(0, bid_child_fork(&self->child, variant->from == FROM_MEMFD ? NULL : path,
				    fd, NULL)) TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_child_exec(&self->child)) TH_LOG("%s", bid_error);
	if (variant->from == FROM_DELETED)
		unlink(copy);
	EXPECT_EQ(0, bid_maps_read(&maps, self->child.pid)) TH_LOG("%s", bid_error);
}

FIXTURE_TEARDOWN(program)
{
	bid_event_close(&self->e);
	bid_child_kill(&self->child);
}

static void load_wait(void *arg)
{
	(void)arg;
	usleep(5000);
}

static const struct bid_map *program_map(const char *name, enum program_from from)
{
	if (from == FROM_DELETED)
		return bid_maps_exec(&maps, "/bid_copy.");
	if (from == FROM_MEMFD)
		return bid_maps_exec(&maps, "/memfd:bid");
	return bid_maps_exec(&maps, name);
}

static int sample_program(struct bid_event *e, pid_t pid, __u64 sample_type,
			  const struct bid_map *focus, __u8 status)
{
	struct perf_event_attr attr;
	struct bid_check c = { .attr = &attr, .maps = &maps, .focus = focus };
	int ret;

	bid_attr_init(&attr, PERF_COUNT_SW_CPU_CLOCK, sample_type);
	bid_attr_apart(&attr);
	if (bid_event_open(e, &attr, pid, -1, -1, BID_RING_PAGES))
		return -1;
	ret = bid_collect(e, &c, load_wait, NULL, &c.stats.focus[status], 100);
	if (!ret && status == PERF_BUILD_ID_OFFSET_RESOLVED &&
	    bid_resolved_percent(&c.stats) < BID_MOST)
		ret = bid_fail("%s", bid_resolved_text(&c.stats));
	bid_event_close(e);
	return ret;
}

TEST_F_TIMEOUT(program, resolves, BID_TIMEOUT_S)
{
	const struct bid_map *m = program_map(variant->name, variant->from);
	__u8 status = variant->id_size ? PERF_BUILD_ID_OFFSET_RESOLVED :
					 PERF_BUILD_ID_OFFSET_NO_BUILD_ID;
	unsigned int segments = 0;

	ASSERT_TRUE(!!m);
	ASSERT_EQ(variant->id_size, m->id_size);
	for (size_t i = 0; i < maps.nr; i++) {
		if (!maps.map[i].exec || strcmp(maps.map[i].path, m->path))
			continue;
		segments++;
		EXPECT_EQ(0, sample_program(&self->e, self->child.pid, ALL_FOUR,
					    &maps.map[i], status)) TH_LOG("%s", bid_error);
		EXPECT_EQ(0, sample_program(&self->e, self->child.pid, BID_BITS,
					    &maps.map[i], status)) TH_LOG("%s", bid_error);
	}
	EXPECT_EQ(variant->segments ?: 1, segments);
}

/* Code of ours, mapped in this process. */

FIXTURE(code)
{
	struct bid_event e;
	bid_lib_spin_fn spin;
	bid_lib_call_fn call;
	char lib[PATH_MAX], temp[PATH_MAX];
	size_t page;
};

FIXTURE_SETUP(code)
{
	int ret = bid_ready();
	void *dl;

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	self->page = sysconf(_SC_PAGESIZE);
	ASSERT_EQ(0, bid_helper_path(self->lib, sizeof(self->lib), "bid_lib.so"))
		TH_LOG("%s", bid_error);
	dl = dlopen(self->lib, RTLD_NOW);
	ASSERT_TRUE(!!dl) TH_LOG("%s", dlerror());
	self->spin = (bid_lib_spin_fn)dlsym(dl, "bid_lib_spin");
	self->call = (bid_lib_call_fn)dlsym(dl, "bid_lib_call");
	ASSERT_TRUE(!!self->spin);
	ASSERT_TRUE(!!self->call);
}

FIXTURE_TEARDOWN(code)
{
	bid_event_close(&self->e);
	if (self->temp[0])
		unlink(self->temp);
}

static void load_spin(void *arg)
{
	bid_lib_spin_fn spin = *(bid_lib_spin_fn *)arg;

	for (int i = 0; i < 16; i++)
		spin(50000);
}

static void load_through_lib(void *arg)
{
	bid_lib_call_fn call = *(bid_lib_call_fn *)arg;

	call(bid_load_user, NULL);
}

/* Samples load(arg), which runs code at addr, until that is seen with status. */
static int sample_code(struct bid_event *e, void (*load)(void *arg), void *arg,
		       void *addr, __u8 status, unsigned long want)
{
	__u64 types[] = { ALL_FOUR, BID_BITS };
	struct perf_event_attr attr;
	struct bid_check c = { .attr = &attr, .maps = &maps };
	int ret = 0;

	if (bid_maps_read(&maps, 0))
		return -1;
	c.focus = bid_maps_find(&maps, (__u64)addr);
	if (!c.focus)
		return bid_fail("%p is not mapped", addr);

	for (size_t i = 0; !ret && i < BID_ARRAY_SIZE(types); i++) {
		memset(&c.stats, 0, sizeof(c.stats));
		bid_attr_init(&attr, PERF_COUNT_SW_CPU_CLOCK, types[i]);
		if (bid_event_open(e, &attr, 0, -1, -1, BID_RING_PAGES))
			return -1;
		ret = bid_collect(e, &c, load, arg, &c.stats.focus[status], want);
		bid_event_close(e);
	}
	return ret;
}

/* Where bid_lib_spin() is in its page, and that page. */
static void *spin_page(bid_lib_spin_fn spin, size_t page)
{
	return (void *)((unsigned long)spin & ~(page - 1));
}

static bid_lib_spin_fn spin_at(void *copy, bid_lib_spin_fn spin, size_t page)
{
	return (bid_lib_spin_fn)((char *)copy + ((unsigned long)spin & (page - 1)));
}

TEST_F_TIMEOUT(code, dlopened_library, BID_TIMEOUT_S)
{
	EXPECT_EQ(0, sample_code(&self->e, load_spin, &self->spin, self->spin,
				 PERF_BUILD_ID_OFFSET_RESOLVED, 100)) TH_LOG("%s", bid_error);
}

TEST_F_TIMEOUT(code, library_in_the_middle, BID_TIMEOUT_S)
{
	EXPECT_EQ(0, sample_code(&self->e, load_through_lib, &self->call, self->call,
				 PERF_BUILD_ID_OFFSET_RESOLVED, 100)) TH_LOG("%s", bid_error);
}

TEST_F_TIMEOUT(code, library_in_a_memfd, BID_TIMEOUT_S)
{
	int fd = make_memfd();
	char path[64];
	bid_lib_spin_fn spin;
	void *dl;

	ASSERT_GE(fd, 0);
	ASSERT_EQ(0, bid_copy_file(fd, self->lib)) TH_LOG("%s", bid_error);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	dl = dlopen(path, RTLD_NOW);
	ASSERT_TRUE(!!dl) TH_LOG("%s", dlerror());
	spin = (bid_lib_spin_fn)dlsym(dl, "bid_lib_spin");
	ASSERT_TRUE(!!spin);
	ASSERT_TRUE(self->spin != spin);
	EXPECT_EQ(0, sample_code(&self->e, load_spin, &spin, spin,
				 PERF_BUILD_ID_OFFSET_RESOLVED, 100)) TH_LOG("%s", bid_error);
}

TEST_F_TIMEOUT(code, anonymous, BID_TIMEOUT_S)
{
	char *copy = mmap(NULL, self->page, PROT_READ | PROT_WRITE | PROT_EXEC,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bid_lib_spin_fn spin;

	ASSERT_TRUE(copy != MAP_FAILED);
	memcpy(copy, spin_page(self->spin, self->page), self->page);
	__builtin___clear_cache(copy, copy + self->page);
	spin = spin_at(copy, self->spin, self->page);
	EXPECT_EQ(0, sample_code(&self->e, load_spin, &spin, spin,
				 PERF_BUILD_ID_OFFSET_ANON, 100)) TH_LOG("%s", bid_error);
}

/* Maps the page of bid_lib_spin() from its file once more. */
static void *map_spin_again(const char *lib, bid_lib_spin_fn spin, size_t page)
{
	__u64 from = (__u64)spin_page(spin, page);
	const struct bid_map *m;
	void *copy;
	int fd;

	if (bid_maps_read(&maps, 0))
		return MAP_FAILED;
	m = bid_maps_find(&maps, from);
	fd = open(lib, O_RDONLY | O_CLOEXEC);
	if (!m || fd < 0)
		return MAP_FAILED;
	copy = mmap(NULL, page, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd,
		    m->offset + (from - m->start));
	close(fd);
	return copy;
}

TEST_F_TIMEOUT(code, nonzero_file_offset, BID_TIMEOUT_S)
{
	void *copy = map_spin_again(self->lib, self->spin, self->page);
	bid_lib_spin_fn spin = spin_at(copy, self->spin, self->page);

	ASSERT_TRUE(copy != MAP_FAILED);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
	ASSERT_NE(0, bid_maps_find(&maps, (__u64)copy)->offset);
	EXPECT_EQ(0, sample_code(&self->e, load_spin, &spin, spin,
				 PERF_BUILD_ID_OFFSET_RESOLVED, 100)) TH_LOG("%s", bid_error);
}

/* A private file mapping that was written to is still the file's. */
TEST_F_TIMEOUT(code, written_private_mapping, BID_TIMEOUT_S)
{
	char *copy = map_spin_again(self->lib, self->spin, self->page);
	bid_lib_spin_fn spin = spin_at(copy, self->spin, self->page);

	ASSERT_TRUE(copy != MAP_FAILED);
	ASSERT_EQ(0, mprotect(copy, self->page, PROT_READ | PROT_WRITE | PROT_EXEC));
	copy[self->page - 1] ^= 1;
	EXPECT_EQ(0, sample_code(&self->e, load_spin, &spin, spin,
				 PERF_BUILD_ID_OFFSET_RESOLVED, 100)) TH_LOG("%s", bid_error);
}

/* Reserves len bytes at a multiple of 2 MiB. */
static char *reserve_aligned(size_t len)
{
	char *p = mmap(NULL, len + 2 * MEG, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	return (char *)(((unsigned long)p + 2 * MEG - 1) & ~(2 * MEG - 1));
}

#define SHMEM_ENABLED "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

/* Huge pages for memfds that ask for them; what it was before into old. */
static int shmem_huge(const char *word, char *old, size_t size)
{
	int fd = open(SHMEM_ENABLED, O_RDWR | O_CLOEXEC);
	char *end = NULL;
	ssize_t len;

	if (fd < 0)
		return -1;
	if (old) {
		len = read(fd, old, size - 1);
		old[len > 0 ? len : 0] = '\0';
		/* the word in brackets */
		end = strchr(old, ']');
		if (end)
			*end = '\0';
		memmove(old, strchr(old, '[') ? strchr(old, '[') + 1 : old, strlen(old) + 1);
	}
	len = write(fd, word, strlen(word));
	close(fd);
	return len > 0 ? 0 : -1;
}

/* Where bid_lib_spin() is in the library's file. */
static __u64 spin_offset(bid_lib_spin_fn spin)
{
	const struct bid_map *m = bid_maps_find(&maps, (__u64)spin);

	return m ? m->offset + ((__u64)spin - m->start) : 0;
}

/* The library's file whole, at a multiple of 2 MiB, in a huge page if there is one. */
TEST_F_TIMEOUT(code, huge_page_aligned, BID_TIMEOUT_S)
{
	char *at = reserve_aligned(4 * MEG), old[128] = "";
	bid_lib_spin_fn spin;
	int fd, set, err;

	ASSERT_TRUE(!!at);
	set = shmem_huge("advise", old, sizeof(old));
	fd = make_memfd();
	ASSERT_GE(fd, 0);
	ASSERT_EQ(0, bid_copy_file(fd, self->lib)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, ftruncate(fd, 4 * MEG));
	ASSERT_TRUE(at == mmap(at, 4 * MEG, PROT_READ | PROT_WRITE | PROT_EXEC,
			       MAP_SHARED | MAP_FIXED, fd, 0));
	madvise(at, 4 * MEG, MADV_HUGEPAGE);
	err = madvise(at, 2 * MEG, MADV_COLLAPSE) ? errno : 0;
	if (!set)
		shmem_huge(old, NULL, 0);
	if (err)
		TH_LOG("small pages: %s", strerror(err));
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
	ASSERT_NE(0, spin_offset(self->spin));
	spin = (bid_lib_spin_fn)(at + spin_offset(self->spin));
	EXPECT_EQ(0, sample_code(&self->e, load_spin, &spin, spin,
				 PERF_BUILD_ID_OFFSET_RESOLVED, 100)) TH_LOG("%s", bid_error);
}

/* Code in a page of hugetlbfs, which is a file like others. */
TEST_F_TIMEOUT(code, hugetlb, BID_TIMEOUT_S)
{
	int fd = memfd_create("bid_huge", MFD_CLOEXEC | MFD_EXEC | MFD_HUGETLB);
	int lib = open(self->lib, O_RDONLY | O_CLOEXEC);
	char *at = MAP_FAILED;
	bid_lib_spin_fn spin;
	size_t size = 0;
	ssize_t n;

	ASSERT_GE(lib, 0);
	if (fd >= 0)
		at = mmap(NULL, 2 * MEG, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		SKIP(return, "no huge page: %s", strerror(errno));
	while ((n = read(lib, at + size, 2 * MEG - size)) > 0)
		size += n;
	close(lib);
	ASSERT_EQ(0, n);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
	ASSERT_NE(0, spin_offset(self->spin));
	spin = (bid_lib_spin_fn)(at + spin_offset(self->spin));
	EXPECT_EQ(0, sample_code(&self->e, load_spin, &spin, spin,
				 PERF_BUILD_ID_OFFSET_RESOLVED, 100)) TH_LOG("%s", bid_error);
}

/* The ID is that of the file, and this file is no ELF although part of it is. */
TEST_F_TIMEOUT(code, elf_inside_another_file, BID_TIMEOUT_S)
{
	const size_t before = 16 * self->page;
	int fd = make_memfd();
	const struct bid_map *m;
	bid_lib_spin_fn spin;
	char *at;

	ASSERT_GE(fd, 0);
	ASSERT_EQ((off_t)before, lseek(fd, before, SEEK_SET));
	ASSERT_EQ(0, bid_copy_file(fd, self->lib)) TH_LOG("%s", bid_error);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
	m = bid_maps_find(&maps, (__u64)self->spin);
	ASSERT_TRUE(!!m);
	at = mmap(NULL, m->end - m->start, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd,
		  before + m->offset);
	ASSERT_TRUE(at != MAP_FAILED);
	/* in memory, so that the answer is not "not resident" */
	ASSERT_EQ((ssize_t)self->page, pwrite(fd, memset(malloc(self->page), 0, self->page),
					      self->page, 0));
	spin = (bid_lib_spin_fn)(at + ((__u64)self->spin - m->start));
	EXPECT_EQ(0, sample_code(&self->e, load_spin, &spin, spin,
				 PERF_BUILD_ID_OFFSET_NO_BUILD_ID, 100)) TH_LOG("%s", bid_error);
}

static void load_vdso(void *arg)
{
	struct timespec ts;

	(void)arg;
	for (int i = 0; i < 20000; i++)
		clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
}

TEST_F_TIMEOUT(code, vdso, BID_TIMEOUT_S)
{
	const struct bid_map *m;

	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
	m = bid_maps_exec(&maps, "[vdso]");
	if (!m)
		SKIP(return, "no vDSO");
	ASSERT_GT(m->id_size, 0);
	EXPECT_EQ(0, sample_code(&self->e, load_vdso, NULL, (void *)m->start,
				 PERF_BUILD_ID_OFFSET_RESOLVED, 50)) TH_LOG("%s", bid_error);
}

/* Files whose every byte is chosen here. */

#define NOTE_MAX 512

struct made_elf {
	Elf64_Ehdr	eh;
	Elf64_Phdr	ph[2];
	__u8		note[NOTE_MAX];
	size_t		note_len;
	__u64		note_at, ph_at;
};

static void add_note(struct made_elf *elf, const char *name, __u32 type,
		     const __u8 *desc, __u32 len)
{
	Elf64_Nhdr nh = { .n_namesz = strlen(name) + 1, .n_descsz = len, .n_type = type };
	__u8 *p = elf->note + elf->note_len;

	memcpy(p, &nh, sizeof(nh));
	memcpy(p + sizeof(nh), name, nh.n_namesz);
	memcpy(p + sizeof(nh) + ((nh.n_namesz + 3) & ~3), desc, len);
	elf->note_len += sizeof(nh) + ((nh.n_namesz + 3) & ~3) + ((len + 3) & ~3);
}

static void made_elf_init(struct made_elf *elf, __u64 note_at)
{
	memset(elf, 0, sizeof(*elf));
	memcpy(elf->eh.e_ident, ELFMAG, SELFMAG);
	elf->eh.e_ident[EI_CLASS] = ELFCLASS64;
	elf->eh.e_ident[EI_DATA] = ELFDATA2LSB;
	elf->eh.e_ident[EI_VERSION] = EV_CURRENT;
	elf->eh.e_type = ET_DYN;
	elf->eh.e_phnum = 2;
	elf->eh.e_phentsize = sizeof(Elf64_Phdr);
	elf->eh.e_phoff = sizeof(Elf64_Ehdr);
	elf->ph_at = sizeof(Elf64_Ehdr);
	elf->ph[0].p_type = PT_LOAD;
	elf->ph[1].p_type = PT_NOTE;
	elf->note_at = note_at;
}

static void made_elf_done(struct made_elf *elf)
{
	elf->ph[1].p_offset = elf->note_at;
	elf->ph[1].p_filesz = elf->note_len;
	elf->ph[1].p_align = 4;
}

/* The file: headers and note, then the page of code at two pages from the start. */
static int write_made_elf(int fd, const struct made_elf *elf, const void *code, size_t page)
{
	return ftruncate(fd, 3 * page) ||
	       pwrite(fd, code, page, 2 * page) != (ssize_t)page ||
	       pwrite(fd, elf->note, elf->note_len, elf->note_at) != (ssize_t)elf->note_len ||
	       pwrite(fd, elf->ph, sizeof(elf->ph), elf->ph_at) != sizeof(elf->ph) ||
	       pwrite(fd, &elf->eh, sizeof(elf->eh), 0) != sizeof(elf->eh) ? -1 : 0;
}

static void *map_made_elf(const struct made_elf *elf, const void *code, size_t page)
{
	void *at = MAP_FAILED;
	int fd = make_memfd();

	if (fd < 0)
		return MAP_FAILED;
	if (!write_made_elf(fd, elf, code, page))
		at = mmap(NULL, page, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 2 * page);
	close(fd);
	return at;
}

static const __u8 made_id[] = {
	0xb1, 0xd0, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a,
	0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16,
};

/* Every size that an ID may have comes back as it is. */
TEST_F_TIMEOUT(code, every_size, BID_TIMEOUT_S)
{
	for (int size = 1; size <= BID_SIZE_MAX; size++) {
		struct made_elf elf;
		bid_lib_spin_fn spin;
		void *at;

		made_elf_init(&elf, 256);
		add_note(&elf, "GNU", NT_GNU_BUILD_ID, made_id, size);
		made_elf_done(&elf);
		at = map_made_elf(&elf, spin_page(self->spin, self->page), self->page);
		ASSERT_TRUE(at != MAP_FAILED);
		spin = spin_at(at, self->spin, self->page);
		ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
		ASSERT_EQ(size, bid_maps_find(&maps, (__u64)at)->id_size);
		ASSERT_EQ(0, sample_code(&self->e, load_spin, &spin, spin,
					 PERF_BUILD_ID_OFFSET_RESOLVED, 15))
			TH_LOG("size %d: %s", size, bid_error);
		munmap(at, self->page);
	}
}

/* The note is on disk only: that is said, and forgotten when it is read in. */

static bool first_page_resident(int fd, size_t page)
{
	unsigned char vec = 1;
	void *p = mmap(NULL, page, PROT_READ, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return true;
	if (mincore(p, page, &vec))
		vec = 1;
	munmap(p, page);
	return vec & 1;
}

/* As sample_code(), but without reading the file, which would bring it in. */
static int sample_missing(struct bid_event *e, bid_lib_spin_fn *spin, void *at)
{
	struct bid_map *m = &maps.map[0];
	struct perf_event_attr attr;
	struct bid_check c = { .attr = &attr, .maps = &maps, .focus = m, .flags = BID_LOOSE };
	int ret;

	memset(m, 0, sizeof(*m));
	maps.nr = 1;
	m->start = (__u64)at;
	m->end = m->start + sysconf(_SC_PAGESIZE);
	m->kind = BID_MAP_FILE;
	bid_attr_init(&attr, PERF_COUNT_SW_CPU_CLOCK, ALL_FOUR);
	if (bid_event_open(e, &attr, 0, -1, -1, BID_RING_PAGES))
		return -1;
	ret = bid_collect(e, &c, load_spin, spin, &c.stats.focus[PERF_BUILD_ID_OFFSET_FAULT], 100);
	bid_event_close(e);
	if (!ret && c.stats.focus[PERF_BUILD_ID_OFFSET_NO_BUILD_ID])
		ret = bid_fail("%lu frames are said to have no build ID",
			       c.stats.focus[PERF_BUILD_ID_OFFSET_NO_BUILD_ID]);
	return ret;
}

TEST_F_TIMEOUT(code, note_not_resident, BID_TIMEOUT_S)
{
	struct made_elf elf;
	bid_lib_spin_fn spin;
	void *at;
	char c;
	int fd;

	/* where the tests are there may be a disk under the files */
	snprintf(self->temp, sizeof(self->temp), "%.*s/bid_disk.XXXXXX",
		 (int)(strrchr(self->lib, '/') - self->lib), self->lib);
	fd = mkostemp(self->temp, O_CLOEXEC);
	if (fd < 0)
		SKIP(return, "no file beside the test: %s", strerror(errno));
	made_elf_init(&elf, 256);
	add_note(&elf, "GNU", NT_GNU_BUILD_ID, made_id, 20);
	made_elf_done(&elf);
	ASSERT_EQ(0, write_made_elf(fd, &elf, spin_page(self->spin, self->page), self->page));
	at = mmap(NULL, self->page, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 2 * self->page);
	if (at == MAP_FAILED)
		SKIP(return, "no mapping of a file here: %s", strerror(errno));
	spin = spin_at(at, self->spin, self->page);
	spin(1);
	/* the code stays, it is mapped */
	fsync(fd);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	if (first_page_resident(fd, self->page))
		SKIP(return, "the file stays in memory");
	EXPECT_EQ(0, sample_missing(&self->e, &spin, at)) TH_LOG("%s", bid_error);
	EXPECT_FALSE(first_page_resident(fd, self->page));

	ASSERT_EQ(1, pread(fd, &c, 1, 0));
	EXPECT_EQ(0, sample_code(&self->e, load_spin, &spin, spin,
				 PERF_BUILD_ID_OFFSET_RESOLVED, 100)) TH_LOG("%s", bid_error);
	close(fd);
}

/* Odd and broken files */

FIXTURE(made)
{
	struct bid_event e;
	bid_lib_spin_fn spin;
	size_t page;
};

FIXTURE_VARIANT(made)
{
	void (*make)(struct made_elf *elf, size_t page);
	bool resolves;
};

static void make_across_pages(struct made_elf *elf, size_t page)
{
	made_elf_init(elf, page - 20);
	add_note(elf, "GNU", NT_GNU_BUILD_ID, made_id, 20);
	made_elf_done(elf);
}

static void make_headers_across_pages(struct made_elf *elf, size_t page)
{
	made_elf_init(elf, 256);
	add_note(elf, "GNU", NT_GNU_BUILD_ID, made_id, 20);
	made_elf_done(elf);
	elf->ph_at = page - sizeof(Elf64_Phdr) - 24;
	elf->eh.e_phoff = elf->ph_at;
}

static void make_after_other_notes(struct made_elf *elf, size_t page)
{
	(void)page;
	made_elf_init(elf, 256);
	add_note(elf, "GNU", NT_GNU_ABI_TAG, made_id + 4, 16);
	add_note(elf, "Go", NT_GNU_BUILD_ID, made_id + 4, 11);
	add_note(elf, "GNU", NT_GNU_BUILD_ID, made_id, 7);
	made_elf_done(elf);
}

static void make_elf32(struct made_elf *elf, size_t page)
{
	Elf32_Ehdr *eh = (Elf32_Ehdr *)&elf->eh;
	Elf32_Phdr *ph = (Elf32_Phdr *)elf->ph;

	(void)page;
	made_elf_init(elf, 256);
	add_note(elf, "GNU", NT_GNU_BUILD_ID, made_id, 12);
	memset(elf->ph, 0, sizeof(elf->ph));
	memset(&eh->e_version, 0, sizeof(elf->eh) - offsetof(Elf32_Ehdr, e_version));
	eh->e_ident[EI_CLASS] = ELFCLASS32;
	eh->e_phoff = elf->ph_at;
	eh->e_phnum = 2;
	ph[0].p_type = PT_LOAD;
	ph[1].p_type = PT_NOTE;
	ph[1].p_offset = elf->note_at;
	ph[1].p_filesz = elf->note_len;
	ph[1].p_align = 4;
}

/* The padding of the last descriptor may be missing. */
static void make_not_padded(struct made_elf *elf, size_t page)
{
	(void)page;
	made_elf_init(elf, 256);
	add_note(elf, "GNU", NT_GNU_BUILD_ID, made_id, 9);
	elf->note_len -= 3;
	made_elf_done(elf);
}

static void make_other_owner(struct made_elf *elf, size_t page)
{
	(void)page;
	made_elf_init(elf, 256);
	add_note(elf, "Go", NT_GNU_BUILD_ID, made_id, 20);
	made_elf_done(elf);
}

static void make_empty_id(struct made_elf *elf, size_t page)
{
	(void)page;
	made_elf_init(elf, 256);
	add_note(elf, "GNU", NT_GNU_BUILD_ID, made_id, 0);
	made_elf_done(elf);
}

static void make_21_bytes(struct made_elf *elf, size_t page)
{
	(void)page;
	made_elf_init(elf, 256);
	add_note(elf, "GNU", NT_GNU_BUILD_ID, made_id, 21);
	made_elf_done(elf);
}

static void make_huge_note(struct made_elf *elf, size_t page)
{
	Elf64_Nhdr *nh = (Elf64_Nhdr *)elf->note;

	(void)page;
	made_elf_init(elf, 256);
	add_note(elf, "GNU", NT_GNU_BUILD_ID, made_id, 20);
	made_elf_done(elf);
	nh->n_namesz = 0xfffffff8;
	nh->n_descsz = 0xfffffff0;
}

static void make_note_cut_short(struct made_elf *elf, size_t page)
{
	(void)page;
	made_elf_init(elf, 256);
	add_note(elf, "GNU", NT_GNU_BUILD_ID, made_id, 20);
	made_elf_done(elf);
	elf->ph[1].p_filesz = 24;
}

static void make_no_headers(struct made_elf *elf, size_t page)
{
	make_across_pages(elf, page);
	elf->eh.e_phnum = 0;
}

static void make_object_file(struct made_elf *elf, size_t page)
{
	make_across_pages(elf, page);
	elf->eh.e_type = ET_REL;
}

static void make_bad_magic(struct made_elf *elf, size_t page)
{
	make_across_pages(elf, page);
	elf->eh.e_ident[0] = 0;
}

static void make_headers_past_the_end(struct made_elf *elf, size_t page)
{
	make_across_pages(elf, page);
	elf->eh.e_phoff = 0x7fffffffffff0000ULL;
	elf->eh.e_phnum = 0xffff;
}

static void make_headers_that_wrap(struct made_elf *elf, size_t page)
{
	make_across_pages(elf, page);
	elf->eh.e_phoff = -64ULL;
}

static void make_note_past_the_end(struct made_elf *elf, size_t page)
{
	make_across_pages(elf, page);
	elf->ph[1].p_offset = 100 * page;
}

FIXTURE_VARIANT_ADD(made, note_across_pages) {
	.make = make_across_pages, .resolves = true,
};

FIXTURE_VARIANT_ADD(made, headers_across_pages) {
	.make = make_headers_across_pages, .resolves = true,
};

FIXTURE_VARIANT_ADD(made, after_other_notes) {
	.make = make_after_other_notes, .resolves = true,
};

FIXTURE_VARIANT_ADD(made, elf32) {
	.make = make_elf32, .resolves = true,
};

FIXTURE_VARIANT_ADD(made, not_padded) {
	.make = make_not_padded, .resolves = true,
};

FIXTURE_VARIANT_ADD(made, other_owner) {
	.make = make_other_owner, .resolves = false,
};

FIXTURE_VARIANT_ADD(made, empty_id) {
	.make = make_empty_id, .resolves = false,
};

FIXTURE_VARIANT_ADD(made, id_of_21_bytes) {
	.make = make_21_bytes, .resolves = false,
};

FIXTURE_VARIANT_ADD(made, huge_note) {
	.make = make_huge_note, .resolves = false,
};

FIXTURE_VARIANT_ADD(made, note_cut_short) {
	.make = make_note_cut_short, .resolves = false,
};

FIXTURE_VARIANT_ADD(made, no_headers) {
	.make = make_no_headers, .resolves = false,
};

FIXTURE_VARIANT_ADD(made, object_file) {
	.make = make_object_file, .resolves = false,
};

FIXTURE_VARIANT_ADD(made, bad_magic) {
	.make = make_bad_magic, .resolves = false,
};

FIXTURE_VARIANT_ADD(made, headers_past_the_end) {
	.make = make_headers_past_the_end, .resolves = false,
};

FIXTURE_VARIANT_ADD(made, headers_that_wrap) {
	.make = make_headers_that_wrap, .resolves = false,
};

FIXTURE_VARIANT_ADD(made, note_past_the_end) {
	.make = make_note_past_the_end, .resolves = false,
};

FIXTURE_SETUP(made)
{
	char lib[PATH_MAX];
	int ret = bid_ready();
	void *dl;

	if (ret > 0)
		SKIP(return, "%s", bid_error);
	ASSERT_EQ(0, ret) TH_LOG("%s", bid_error);
	self->page = sysconf(_SC_PAGESIZE);
	ASSERT_EQ(0, bid_helper_path(lib, sizeof(lib), "bid_lib.so")) TH_LOG("%s", bid_error);
	dl = dlopen(lib, RTLD_NOW);
	ASSERT_TRUE(!!dl) TH_LOG("%s", dlerror());
	self->spin = (bid_lib_spin_fn)dlsym(dl, "bid_lib_spin");
	ASSERT_TRUE(!!self->spin);
}

FIXTURE_TEARDOWN(made)
{
	bid_event_close(&self->e);
}

TEST_F_TIMEOUT(made, elf, BID_TIMEOUT_S)
{
	struct perf_event_attr attr;
	struct bid_check c = { .attr = &attr, .maps = &maps };
	struct made_elf elf;
	unsigned long *hits;
	bid_lib_spin_fn spin;
	void *at;

	variant->make(&elf, self->page);
	at = map_made_elf(&elf, spin_page(self->spin, self->page), self->page);
	ASSERT_TRUE(at != MAP_FAILED);
	spin = spin_at(at, self->spin, self->page);
	ASSERT_EQ(0, bid_maps_read(&maps, 0)) TH_LOG("%s", bid_error);
	c.focus = bid_maps_find(&maps, (__u64)at);
	ASSERT_TRUE(!!c.focus);
	ASSERT_EQ(variant->resolves, c.focus->id_size > 0);

	/* Not resident or not there: either is true of what lies past the end. */
	hits = &c.stats.focus[variant->resolves ? PERF_BUILD_ID_OFFSET_RESOLVED :
						  PERF_BUILD_ID_OFFSET_NO_BUILD_ID];
	if (variant->make == make_headers_past_the_end || variant->make == make_headers_that_wrap ||
	    variant->make == make_note_past_the_end)
		hits = &c.stats.focus_frames;
	bid_attr_init(&attr, PERF_COUNT_SW_CPU_CLOCK, ALL_FOUR);
	attr.exclude_kernel = 1;
	ASSERT_EQ(0, bid_event_open(&self->e, &attr, 0, -1, -1, BID_RING_PAGES))
		TH_LOG("%s", bid_error);
	EXPECT_EQ(0, bid_collect(&self->e, &c, load_spin, &spin, hits, 60))
		TH_LOG("%s", bid_error);
	if (!variant->resolves)
		EXPECT_EQ(0, c.stats.focus[PERF_BUILD_ID_OFFSET_RESOLVED]);
}

TEST_HARNESS_MAIN
