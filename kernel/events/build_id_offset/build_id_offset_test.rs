// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the parts of `build_id_offset` that are pure.
//!
//! They are a crate of their own, made from the same files, so that what asserts does not end up
//! in the object that runs in NMI context.

use kernel::prelude::kunit_tests;

#[allow(dead_code)]
#[cfg(CONFIG_PERF_BUILD_ID_OFFSET_CACHE)]
mod cache;
#[allow(dead_code)]
mod chain;
#[allow(dead_code)]
mod entry;
#[allow(dead_code)]
mod room;

#[kunit_tests(perf_build_id_offset_entry)]
mod entry_tests {
    use crate::entry::*;
    use kernel::bindings;
    use kernel::build_id::BuildId;
    use kernel::build_id::Frame;
    use kernel::build_id::Vdso;

    /// A frame as the reader leaves it.
    fn frame(status: u32, detail: u32, id: &[u8], value: u64) -> Frame {
        let mut bytes = [0u8; 32];
        bytes[..4].copy_from_slice(&(status | detail << 8 | 1 << 31).to_ne_bytes());
        bytes[4..4 + id.len()].copy_from_slice(id);
        bytes[24..].copy_from_slice(&value.to_ne_bytes());
        zerocopy::transmute!(bytes)
    }

    fn bytes(entry: Entry) -> [u8; 32] {
        zerocopy::transmute!(entry)
    }

    #[test]
    fn lays_out_a_resolved_entry() {
        for size in [1usize, 5, 8, 16, 20] {
            let id = &[0xeeu8; 20][..size];
            let frame = frame(1, size as u32, id, 0x1234_5678);
            let entry = bytes(Entry::of_frame(&frame, || None));
            let known = Entry::resolved(&BuildId::new(id).unwrap(), 0);
            let known = Entry::of_words(known.words(), 0x1234_5678);
            assert_eq!(entry, bytes(known));

            assert_eq!(usize::from(entry[0]), size);
            assert_eq!(entry[1..4], [0, 0, 0]);
            assert_eq!(&entry[4..4 + size], id);
            assert!(entry[4 + size..24].iter().all(|byte| *byte == 0));
            assert_eq!(entry[24..], 0x1234_5678u64.to_ne_bytes());
        }
    }

    #[test]
    fn lays_out_every_other_status() {
        let cases = [
            (Status::Context, 1),
            (Status::Kernel, 2),
            (Status::Deferred, 3),
            (Status::Anon, 4),
            (Status::NoBuildId, 5),
            (Status::Fault, 6),
            (Status::Busy, 7),
            (Status::NoMm, 8),
            (Status::NoMemory, 9),
        ];
        for (status, value) in cases {
            let entry = bytes(Entry::unresolved(status, u64::MAX));

            assert_eq!(entry[..4], [0, value, 0, 0]);
            assert!(entry[4..24].iter().all(|byte| *byte == 0));
            assert_eq!(entry[24..], u64::MAX.to_ne_bytes());
        }
    }

    #[test]
    fn says_why_a_frame_was_not_resolved() {
        for (errno, status) in [
            (bindings::ENOENT, Status::Anon),
            (bindings::ENXIO, Status::Anon),
            (bindings::EINVAL, Status::NoBuildId),
            (bindings::EFAULT, Status::Fault),
            (bindings::EBUSY, Status::Busy),
            (bindings::ESRCH, Status::NoMm),
            (bindings::ENOMEM, Status::NoMemory),
        ] {
            let entry = bytes(Entry::of_frame(&frame(2, errno, &[], 0x1000), || None));

            assert_eq!(entry, bytes(Entry::unresolved(status, 0x1000)));
        }
    }

    #[test]
    fn fills_in_the_vdso() {
        static IMAGE: [u8; 156] = elf([7; 20]);
        const START: usize = 0x7fff_0000_0000;
        let frame = frame(1, 0, &[], 0x9a0);

        let vdso = Vdso::new(START, &IMAGE);
        let entry = bytes(Entry::of_frame(&frame, || Some(vdso)));
        assert_eq!(entry[..4], [20, 0, 0, 0]);
        assert_eq!(entry[4..24], [7; 20]);
        assert_eq!(entry[24..], 0x9a0u64.to_ne_bytes());

        let vdso = Vdso::new(START, b"no ELF");
        let entry = bytes(Entry::of_frame(&frame, || Some(vdso)));
        assert_eq!(
            entry,
            bytes(Entry::unresolved(Status::Anon, 0x7fff_0000_09a0))
        );
    }

    /// An ELF file with nothing but a build ID.
    const fn elf(id: [u8; 20]) -> [u8; 156] {
        let mut elf = [0; 156];
        elf[0] = 0x7f;
        elf[1] = b'E';
        elf[2] = b'L';
        elf[3] = b'F';
        elf[4] = 2; // 64 bits
        put(&mut elf, 32, &64u64.to_ne_bytes()); // program headers
        put(&mut elf, 54, &56u16.to_ne_bytes());
        put(&mut elf, 56, &1u16.to_ne_bytes());
        put(&mut elf, 64, &4u32.to_ne_bytes()); // notes
        put(&mut elf, 72, &120u64.to_ne_bytes());
        put(&mut elf, 96, &36u64.to_ne_bytes());
        put(&mut elf, 120, &4u32.to_ne_bytes());
        put(&mut elf, 124, &20u32.to_ne_bytes());
        put(&mut elf, 128, &3u32.to_ne_bytes()); // NT_GNU_BUILD_ID
        put(&mut elf, 132, b"GNU\0");
        put(&mut elf, 136, &id);
        elf
    }

    const fn put(to: &mut [u8], at: usize, what: &[u8]) {
        let mut i = 0;
        while i < what.len() {
            to[at + i] = what[i];
            i += 1;
        }
    }
}

#[kunit_tests(perf_build_id_offset_room)]
mod room_tests {
    use crate::entry::ENTRY_SIZE;
    use crate::room::*;

    #[test]
    fn takes_what_is_asked_for_where_it_fits() {
        for (ip, callchain, size, count) in [
            (true, None, 32, 0),
            (false, Some(0), 8, 0),
            (false, Some(10), 328, 10),
            (true, Some(127), 32 + 8 + 127 * 32, 127),
        ] {
            let room = Room::find(100 * 8, 0, ip, callchain);
            assert_eq!(
                room,
                Room {
                    size,
                    count,
                    excess: 0
                }
            );
        }
    }

    #[test]
    fn never_overflows_the_size() {
        let chains = [
            None,
            Some(0),
            Some(1),
            Some(127),
            Some(2046),
            Some(2047),
            Some(u64::MAX),
        ];
        let all = Pending {
            stack_user: true,
            regs_intr: Some(64),
            aux: true,
        };
        for taken in (0..=RECORD_SIZE_MAX).step_by(8) {
            for pending in [
                0,
                Pending {
                    aux: true,
                    ..Pending::default()
                }
                .size(),
                all.size(),
            ] {
                for ip in [false, true] {
                    for chain in chains {
                        let room = Room::find(taken, pending, ip, chain);
                        let total = taken + pending + room.size;

                        assert_eq!(room.size % 8, 0);
                        assert!(u64::from(room.count) <= chain.unwrap_or(0));
                        assert!(room.count <= ENTRIES_MAX);
                        assert_eq!(total.saturating_sub(RECORD_SIZE_MAX), room.excess);
                        // Nothing is cut that would have fit.
                        if u64::from(room.count) < chain.unwrap_or(0).min(ENTRIES_MAX.into()) {
                            assert!(total + ENTRY_SIZE > RECORD_SIZE_MAX);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn keeps_at_most_2046_entries() {
        let room = Room::find(8, 0, false, Some(3000));
        assert_eq!(room.count, 2046);
        assert!(8 + room.size <= u32::from(u16::MAX));
    }

    #[test]
    fn clamps_a_deferred_callchain() {
        // Without a `struct sample_id`, and with all of it, which costs an entry.
        for (sample_id, most) in [(0, 2046), (48, 2045)] {
            for nr in [0, 1, 507, 2045, 2046, 2047, u64::MAX] {
                let room = Room::find_deferred(sample_id, nr);
                // The header, the cookie, `nr` and the entries.
                let total = 8 + 8 + room.size + sample_id;

                assert_eq!(u64::from(room.count), nr.min(most));
                assert_eq!(room.size, 8 + u32::from(room.count) * ENTRY_SIZE);
                assert!(total <= RECORD_SIZE_MAX);
                assert_eq!(room.excess, 0);
            }
        }
    }

    #[test]
    fn saturates() {
        let room = Room::find(u32::MAX, u32::MAX, true, Some(u64::MAX));
        assert_eq!(room.count, 0);
        assert_eq!(room.size, 40);
        assert!(room.excess > 0);

        let pending = Pending {
            stack_user: true,
            regs_intr: Some(u32::MAX),
            aux: true,
        };
        assert_eq!(pending.size(), u32::MAX);
    }

    #[test]
    fn counts_what_is_pending() {
        let none = Pending::default();
        assert_eq!(none.size(), 0);
        assert_eq!(
            Pending {
                stack_user: true,
                ..none
            }
            .size(),
            24
        );
        assert_eq!(Pending { aux: true, ..none }.size(), 8);
        assert_eq!(
            Pending {
                regs_intr: Some(0),
                ..none
            }
            .size(),
            8
        );
        assert_eq!(
            Pending {
                regs_intr: Some(20),
                ..none
            }
            .size(),
            168
        );
    }
}

#[kunit_tests(perf_build_id_offset_chain)]
mod chain_tests {
    use crate::chain::*;
    use kernel::bindings;

    const KERNEL: u64 = bindings::perf_callchain_context_PERF_CONTEXT_KERNEL as u64;
    const GUEST: u64 = bindings::perf_callchain_context_PERF_CONTEXT_GUEST as u64;

    fn check(chain: &[(u64, Kind)]) {
        let mut part = Part::FIRST;
        for (value, kind) in chain {
            assert_eq!(part.classify(*value), *kind);
        }
    }

    #[test]
    fn tells_user_from_kernel() {
        check(&[
            (KERNEL, Kind::Marker),
            (0xffff_ffff_8100_0000, Kind::Kernel),
            (0xffff_ffff_8100_1000, Kind::Kernel),
            (CONTEXT_USER, Kind::Marker),
            (0x40_1000, Kind::User),
            (0x7f00_0000_1000, Kind::User),
        ]);
        check(&[(CONTEXT_USER, Kind::Marker), (0x40_1000, Kind::User)]);
        check(&[(GUEST, Kind::Marker), (0x40_1000, Kind::Kernel)]);
    }

    #[test]
    fn tells_the_cookie() {
        check(&[
            (KERNEL, Kind::Marker),
            (0xffff_ffff_8100_0000, Kind::Kernel),
            (CONTEXT_USER_DEFERRED, Kind::Marker),
            (0x1_0000_0003, Kind::Cookie),
        ]);
        // A cookie can look like anything.
        check(&[
            (CONTEXT_USER_DEFERRED, Kind::Marker),
            (CONTEXT_USER, Kind::Cookie),
        ]);
    }

    #[test]
    fn is_not_led_astray_by_a_planted_marker() {
        check(&[
            (CONTEXT_USER, Kind::Marker),
            (KERNEL, Kind::User),
            (0x40_1000, Kind::User),
            (CONTEXT_USER_DEFERRED, Kind::User),
            (0x40_2000, Kind::User),
            (u64::MAX, Kind::User),
        ]);
    }
}

#[cfg(CONFIG_PERF_BUILD_ID_OFFSET_CACHE)]
#[kunit_tests(perf_build_id_offset_cache)]
mod cache_tests {
    use crate::cache::*;
    use kernel::build_id::BuildId;
    use kernel::impl_has_work;
    use kernel::mm::speculative::FileVersion;
    use kernel::new_work;
    use kernel::prelude::*;
    use kernel::sync::atomic::Atomic;
    use kernel::sync::atomic::Relaxed;
    use kernel::sync::rcu;
    use kernel::sync::Arc;
    use kernel::sync::Completion;
    use kernel::workqueue;
    use kernel::workqueue::Work;
    use kernel::workqueue::WorkItem;

    /// More files than the table has room for.
    const MANY: u64 = 5000;

    fn version(inode: u64) -> FileVersion {
        FileVersion::new(inode, 1_700_000_000, 5)
    }

    /// An ID that says which inode and second it is of.
    fn id(inode: u64, second: i64) -> Answer {
        let mut bytes = [0u8; 20];
        bytes[..8].copy_from_slice(&inode.to_ne_bytes());
        bytes[8..16].copy_from_slice(&second.to_ne_bytes());
        bytes[16..].copy_from_slice(&(inode as u32 ^ second as u32).to_ne_bytes());
        BuildId::new(&bytes).map_or(Answer::NoId, Answer::Id)
    }

    fn get(cache: &Cache, version: &FileVersion) -> Option<Answer> {
        cache.get(version, &rcu::read_lock())
    }

    fn put(cache: &Cache, version: &FileVersion, answer: Answer) -> Stored {
        assert!(cache.reserve(version).is_ok());
        cache.put(version, answer, &rcu::read_lock())
    }

    #[test]
    fn finds_what_was_stored() {
        let cache = Cache::new();

        assert_eq!(get(&cache, &version(7)), None);
        assert_eq!(put(&cache, &version(7), id(7, 0)), Stored::Yes);
        assert_eq!(put(&cache, &version(8), Answer::NoId), Stored::Yes);
        assert_eq!(get(&cache, &version(7)), Some(id(7, 0)));
        assert_eq!(get(&cache, &version(8)), Some(Answer::NoId));
        assert_eq!(get(&cache, &version(9)), None);
        cache.free();
    }

    #[test]
    fn keeps_ids_of_every_length() {
        let cache = Cache::new();

        for size in 1..=20usize {
            let id = BuildId::new(&[0xa5; 20][..size]).map_or(Answer::NoId, Answer::Id);
            put(&cache, &version(size as u64), id);
            assert_eq!(get(&cache, &version(size as u64)), Some(id));
        }
        cache.free();
    }

    #[test]
    fn does_not_answer_for_another_version() {
        let cache = Cache::new();
        let later = [
            FileVersion::new(7, 1_700_000_000, 6),
            FileVersion::new(7, 1_700_000_001, 5),
            FileVersion::new(7, 1_699_999_999, 5),
        ];

        put(&cache, &version(7), id(7, 0));
        for version in &later {
            assert_eq!(get(&cache, version), None);
        }
        // The new version takes the old one's place.
        assert_eq!(put(&cache, &later[0], id(7, 1)), Stored::Yes);
        assert_eq!(get(&cache, &later[0]), Some(id(7, 1)));
        assert_eq!(get(&cache, &version(7)), None);
        cache.free();
    }

    #[test]
    fn remembers_what_could_not_be_read() {
        let cache = Cache::new();
        let next_try = |version| cache.next_try(&version, &rcu::read_lock());

        put(&cache, &version(8), id(8, 0));
        assert!(cache.reserve(&version(7)).is_ok());
        cache.put_unreadable(&version(7), 5000, &rcu::read_lock());
        assert_eq!(next_try(version(7)), Some(5000));
        assert_eq!(next_try(version(8)), None);
        assert_eq!(next_try(FileVersion::new(7, 1_700_000_000, 6)), None);
        // It is no answer.
        assert_eq!(get(&cache, &version(7)), None);

        assert_eq!(put(&cache, &version(7), Answer::NoId), Stored::Yes);
        assert_eq!(next_try(version(7)), None);
        assert_eq!(get(&cache, &version(7)), Some(Answer::NoId));
        cache.free();
    }

    #[test]
    fn forgets() {
        let cache = Cache::new();

        put(&cache, &version(7), id(7, 0));
        put(&cache, &version(8), id(8, 0));
        cache.forget(&FileVersion::new(7, 0, 0), &rcu::read_lock());
        assert_eq!(get(&cache, &version(7)), None);
        assert_eq!(get(&cache, &version(8)), Some(id(8, 0)));
        cache.free();
    }

    #[test]
    fn evicts_and_stays_within_its_limit() {
        let cache = Cache::new();
        let mut evicted = 0;

        for inode in 1..=MANY {
            match put(&cache, &version(inode), id(inode, 0)) {
                Stored::Yes => (),
                Stored::Evicted => evicted += 1,
                Stored::No => panic!("not stored"),
            }
            assert_eq!(get(&cache, &version(inode)), Some(id(inode, 0)));
        }
        let found = (1..=MANY).filter(|inode| get(&cache, &version(*inode)).is_some());
        assert_eq!(found.count() as u64, MANY - evicted);
        assert!(evicted > 0 && cache.len() <= 16);
        cache.free();
    }

    #[test]
    fn has_room_for_hundreds_of_files() {
        const FILES: u64 = 400;
        let cache = Cache::new();

        for inode in 1..=FILES {
            put(&cache, &version(inode), id(inode, 0));
        }
        let found = (1..=FILES).filter(|inode| get(&cache, &version(*inode)).is_some());
        assert!(found.count() as u64 > FILES * 9 / 10);
        cache.free();
    }

    #[test]
    fn needs_memory_and_gives_it_back() {
        let cache = Cache::new();

        let stored = cache.put(&version(7), id(7, 0), &rcu::read_lock());
        assert_eq!(stored, Stored::No);
        put(&cache, &version(7), id(7, 0));
        assert_eq!(cache.len(), 1);
        assert_eq!(cache.free(), 1);
        assert_eq!(cache.len(), 0);
        assert_eq!(get(&cache, &version(7)), None);
    }

    /// What is written to by several, and read, and thrown away, at the same time.
    static SHARED: Cache = Cache::new();
    static STOP: Atomic<i32> = Atomic::new(0);

    #[pin_data]
    struct Writer {
        #[pin]
        work: Work<Writer>,
        #[pin]
        done: Completion,
        turn: i64,
    }

    impl_has_work! {
        impl HasWork<Self> for Writer { self.work }
    }

    impl WorkItem for Writer {
        type Pointer = Arc<Writer>;

        fn run(this: Arc<Writer>) {
            let mut second = this.turn;
            while STOP.load(Relaxed) == 0 {
                for inode in 1..=200 {
                    let version = FileVersion::new(inode, second, inode as u32);
                    let _ = SHARED.reserve(&version);
                    SHARED.put(&version, id(inode, second), &rcu::read_lock());
                }
                second = (second + 2) % 8;
            }
            this.done.complete_all();
        }
    }

    #[test]
    fn readers_never_see_a_mixture() -> Result {
        let mut writers = KVec::new();
        for turn in 0..2 {
            let writer = Arc::pin_init(
                pin_init!(Writer {
                    work <- new_work!("Writer::work"),
                    done <- Completion::new(),
                    turn,
                }),
                GFP_KERNEL,
            )?;
            let _ = workqueue::system_unbound().enqueue(writer.clone());
            writers.push(writer, GFP_KERNEL)?;
        }

        let (mut hits, mut wrong) = (0u64, 0u64);
        for round in 0..2000u32 {
            for inode in 1..=200 {
                let second = i64::from(round % 8);
                let version = FileVersion::new(inode, second, inode as u32);
                if let Some(answer) = get(&SHARED, &version) {
                    hits += 1;
                    wrong += u64::from(answer != id(inode, second));
                }
            }
            if round % 100 == 99 {
                SHARED.free();
            }
        }
        STOP.store(1, Relaxed);
        for writer in &writers {
            writer.done.wait_for_completion();
        }
        SHARED.free();
        assert_eq!(wrong, 0);
        assert!(hits > 0);
        Ok(())
    }
}
