// SPDX-License-Identifier: GPL-2.0

//! Build IDs: which file is behind a user address, and where in it.
//!
//! A *build ID* is the content of an ELF file's `NT_GNU_BUILD_ID` note, 1 to 20 bytes that name
//! the file for as long as its content stays the same. A user address of the current task is
//! *resolved* when it is turned into the build ID of the file that is mapped there and the byte
//! offset in that file.
//!
//! The work is done by the reader of the BPF stack map. It comes in two forms:
//!
//! - [`resolve_nofault`] works in any context, NMI included. It looks at what is in memory, and
//!   gives up where it would have to wait.
//! - [`resolve`] may sleep and take page faults, and reads what is not in memory.
//!
//! C headers: [`include/linux/stack_map_build_id.h`](srctree/include/linux/stack_map_build_id.h),
//! [`include/linux/buildid.h`](srctree/include/linux/buildid.h)

use core::mem::offset_of;

use zerocopy_derive::Immutable;
use zerocopy_derive::KnownLayout;

use crate::bindings;
use crate::error::to_result;
use crate::fs::File;
use crate::mm::virt::VmaRef;
use crate::prelude::*;
use crate::sync::aref::ARef;

/// The most bytes that a build ID can have.
pub const BUILD_ID_SIZE_MAX: usize = bindings::BUILD_ID_SIZE_MAX as usize;

/// A user address on its way to a build ID and a file offset.
///
/// It is made with the address. After it went through [`resolve_nofault`] or [`resolve`], its
/// [`outcome`](Frame::outcome) says what became of it.
///
/// Something else of the same size can take its place where its first word is neither 0 nor has
/// the top bit set: it is not [new](Frame::is_new), so the two leave it alone, nor was it
/// [read](Frame::is_read) by them.
///
/// # Invariants
///
/// The layout is that of the C `struct bpf_stack_build_id`.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Zeroable)]
pub struct Frame {
    status: u32,
    build_id: [u8; BUILD_ID_SIZE_MAX],
    value: u64,
}

/// The status of a frame that is resolved, in the low byte.
const VALID: u32 = bindings::bpf_stack_build_id_status_BPF_STACK_BUILD_ID_VALID;

const _: () = {
    assert!(size_of::<Frame>() == size_of::<bindings::bpf_stack_build_id>());
    assert!(align_of::<Frame>() >= align_of::<bindings::bpf_stack_build_id>());
    assert!(offset_of!(Frame, status) == offset_of!(bindings::bpf_stack_build_id, status));
    assert!(offset_of!(Frame, build_id) == offset_of!(bindings::bpf_stack_build_id, build_id));
    assert!(offset_of!(Frame, value) == offset_of!(bindings::bpf_stack_build_id, __bindgen_anon_1));
};

/// What became of a [`Frame`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The frame holds a build ID of `size` bytes, zero padded, and a file offset.
    Resolved {
        /// The true length of the build ID, 1 to [`BUILD_ID_SIZE_MAX`].
        size: u8,
    },
    /// The address is in the vDSO. The frame holds the offset in its image, see
    /// [`Vdso`].
    Vdso,
    /// No mapping has the address, or none that has a file behind it.
    NoFile,
    /// The file is not ELF, has no build ID, or could not be read.
    NoBuildId,
    /// The file could not be read without a page fault.
    NotResident,
    /// The address space or the file could not be looked at just then.
    Busy,
    /// There is no user address space.
    NoMm,
    /// The file could not be read for lack of memory.
    NoMemory,
}

impl Frame {
    /// Where its [value](Self::value) is among its bytes: at the end.
    pub const VALUE_OFFSET: usize = offset_of!(Frame, value);

    /// Makes a frame of a user address.
    #[inline]
    pub const fn new(address: u64) -> Self {
        Self {
            status: 0,
            build_id: [0; BUILD_ID_SIZE_MAX],
            value: address,
        }
    }

    /// Makes a new frame of this one. Quicker than to put a new one in its place.
    #[inline]
    pub fn renew(&mut self, address: u64) {
        self.status = 0;
        self.value = address;
    }

    /// Returns what became of this frame. It is [`Outcome::Busy`] while nothing has.
    #[inline]
    pub fn outcome(&self) -> Outcome {
        let detail = (self.status >> 8) as u16;
        if self.status as u8 == VALID as u8 {
            return match detail {
                0 => Outcome::Vdso,
                size => Outcome::Resolved { size: size as u8 },
            };
        }

        match u32::from(detail) {
            bindings::ENOENT | bindings::ENXIO => Outcome::NoFile,
            bindings::EFAULT => Outcome::NotResident,
            bindings::ESRCH => Outcome::NoMm,
            bindings::ENOMEM => Outcome::NoMemory,
            // The latter where a fatal signal ends the wait for a file.
            bindings::EBUSY | bindings::EINTR | 0 => Outcome::Busy,
            _ => Outcome::NoBuildId,
        }
    }

    /// Whether nothing has become of this frame yet.
    #[inline]
    pub fn is_new(&self) -> bool {
        self.status == 0
    }

    /// Whether something has become of this frame in [`resolve_nofault`] or [`resolve`].
    #[inline]
    pub fn is_read(&self) -> bool {
        self.status & bindings::STACK_MAP_BUILD_ID_READ != 0
    }

    /// The build ID, zero padded, once the frame is [resolved](Outcome::Resolved).
    #[inline]
    pub fn build_id(&self) -> &[u8; BUILD_ID_SIZE_MAX] {
        &self.build_id
    }

    /// The address that this frame was made with or, once it is [resolved](Outcome::Resolved) or
    /// known to be in the [vDSO](Outcome::Vdso), the offset.
    #[inline]
    pub fn value(&self) -> u64 {
        self.value
    }
}

/// The reader's `trace_nr` for `frames`. There is no buffer as long as would not fit.
#[inline]
fn frame_count(frames: &[Frame]) -> u32 {
    u32::try_from(frames.len()).unwrap_or(u32::MAX)
}

/// Resolves user addresses of the current task without a page fault. Frames that something has
/// become of already stay as they are.
///
/// Can be called in any context. With interrupts disabled only the first call in an interrupt can
/// succeed, hence all that is to be resolved there goes into one call.
#[inline]
pub fn resolve_nofault(frames: &mut [Frame]) {
    let count = frame_count(frames);

    // SAFETY: `frames` is valid for `count` entries, which have the layout of the C type by the
    // type invariant, and the reader looks at nothing but the current task's address space.
    unsafe { bindings::stack_map_resolve_build_ids(frames.as_mut_ptr().cast(), count, false) };
}

/// Resolves user addresses of the current task, and reads from files where it has to. Frames that
/// something has become of already stay as they are.
///
/// May sleep and take page faults: not for use in atomic context.
#[inline]
pub fn resolve(frames: &mut [Frame]) {
    let count = frame_count(frames);

    crate::task::might_sleep();

    // SAFETY: As in `resolve_nofault()`.
    unsafe { bindings::stack_map_resolve_build_ids(frames.as_mut_ptr().cast(), count, true) };
}

/// The vDSO in the current task's address space.
#[derive(Clone, Copy)]
pub struct Vdso {
    start: usize,
    image: &'static [u8],
}

impl Vdso {
    /// One that is made up, for tests.
    pub const fn new(start: usize, image: &'static [u8]) -> Self {
        Self { start, image }
    }

    /// The current task's, if it has one. Can be called in any context.
    #[inline]
    pub fn current() -> Option<Self> {
        let (mut size, mut start) = (0, 0);
        // SAFETY: Both are valid for a write.
        let image: *const u8 =
            unsafe { bindings::current_vdso_image(&raw mut size, &raw mut start) }.cast();
        if image.is_null() {
            return None;
        }

        // SAFETY: A vDSO image is part of the kernel: it is never freed, and not written to after
        // boot.
        let image = unsafe { core::slice::from_raw_parts(image, size) };
        Some(Self { start, image })
    }

    /// Whether it is mapped at `start..end`, as a whole.
    #[inline]
    pub fn is_mapped_at(&self, start: usize, end: usize) -> bool {
        start == self.start && end.wrapping_sub(start) >= self.image.len()
    }

    /// The address of what is at `offset` of its image.
    #[inline]
    pub fn address_of(&self, offset: u64) -> u64 {
        offset.wrapping_add(self.start as u64)
    }

    /// Its build ID.
    #[inline]
    pub fn build_id(&self) -> Option<BuildId> {
        BuildId::of_elf(self.image)
    }
}

/// The file behind a mapping.
#[inline]
pub fn file_of(vma: &VmaRef) -> Option<&File> {
    // SAFETY: `vma` is locked, at least against changes.
    let file = unsafe { (*vma.as_ptr()).vm_file };

    // SAFETY: If it is not null, the mapping has a reference to the file, so it is valid for as
    // long as `vma` is, and `fdget_pos()` takes the lock as that is not the only one.
    (!file.is_null()).then(|| unsafe { File::from_raw_file(file) })
}

/// The file behind an address of the current task. May sleep.
pub fn file_at(address: usize) -> Option<ARef<File>> {
    let task = crate::current!();
    let mm = task.mm()?.mmap_read_lock();

    mm.vma_lookup(address).and_then(file_of).map(ARef::from)
}

/// A build ID.
///
/// # Invariants
///
/// `size` is in `1..=BUILD_ID_SIZE_MAX`, and `data` is zero from `size` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildId {
    size: u8,
    data: [u8; BUILD_ID_SIZE_MAX],
}

impl BuildId {
    /// The build ID of an open file, which is read where it is not in memory. [`None`] if it is
    /// known to have none.
    ///
    /// Fails where the file could not be read. Task context, may sleep.
    pub fn of_file(file: &File) -> Result<Option<Self>> {
        let (mut data, mut size) = ([0; BUILD_ID_SIZE_MAX], 0);

        // SAFETY: The file is open, and both are valid for what is written to them.
        let result = to_result(unsafe {
            bindings::build_id_parse_file(file.as_ptr(), data.as_mut_ptr(), &raw mut size)
        });
        match result {
            Ok(()) => Ok(data.get(..size as usize).and_then(Self::new)),
            Err(error) if error == EINVAL => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The build ID of an ELF file of this machine's byte order that is in memory as a whole.
    ///
    /// Can be called in any context.
    #[inline]
    pub fn of_elf(elf: &[u8]) -> Option<Self> {
        const EI_CLASS: usize = 4;
        const PT_NOTE: u32 = bindings::PT_NOTE;

        if elf.get(..4)? != b"\x7fELF" {
            return None;
        }
        // `e_phoff`, `e_phentsize` and `e_phnum`, then `p_offset` and `p_filesz`.
        let wide = match elf.get(EI_CLASS)? {
            2 => true,
            1 => false,
            _ => return None,
        };
        let word = |at: usize| -> Option<usize> {
            if wide {
                read_u64(elf, at)?.try_into().ok()
            } else {
                Some(read_u32(elf, at)? as usize)
            }
        };
        let (table, entry_size, count) = if wide {
            (word(32)?, read_u16(elf, 54)?, read_u16(elf, 56)?)
        } else {
            (word(28)?, read_u16(elf, 42)?, read_u16(elf, 44)?)
        };
        let (at_offset, at_size) = if wide { (8, 32) } else { (4, 16) };

        (0..usize::from(count)).find_map(|index| {
            let header = table.checked_add(index.checked_mul(usize::from(entry_size))?)?;
            if read_u32(elf, header)? != PT_NOTE {
                return None;
            }
            let offset = word(header.checked_add(at_offset)?)?;
            let size = word(header.checked_add(at_size)?)?;
            Self::of_notes(elf.get(offset..offset.checked_add(size)?)?)
        })
    }

    /// The build ID among ELF notes.
    #[inline]
    fn of_notes(mut notes: &[u8]) -> Option<Self> {
        const HEADER: usize = 12;
        const NAME: &[u8] = b"GNU\0";
        const NT_GNU_BUILD_ID: u32 = 3;

        loop {
            let name_size = read_u32(notes, 0)? as usize;
            let desc_size = read_u32(notes, 4)? as usize;
            let kind = read_u32(notes, 8)?;
            let desc = HEADER.checked_add(name_size.checked_next_multiple_of(4)?)?;
            let name = notes.get(HEADER..HEADER.checked_add(name_size)?)?;

            if kind == NT_GNU_BUILD_ID && name == NAME {
                return Self::new(notes.get(desc..desc.checked_add(desc_size)?)?);
            }
            notes = notes.get(desc.checked_add(desc_size.checked_next_multiple_of(4)?)?..)?;
        }
    }

    /// Makes a build ID of its bytes, of which there must be 1 to [`BUILD_ID_SIZE_MAX`].
    #[inline]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() || bytes.len() > BUILD_ID_SIZE_MAX {
            return None;
        }

        let mut data = [0; BUILD_ID_SIZE_MAX];
        data.iter_mut()
            .zip(bytes)
            .for_each(|(to, from)| *to = *from);

        // INVARIANT: The length was checked above and fits in a `u8`; the rest of `data` is zero.
        Some(Self {
            size: bytes.len() as u8,
            data,
        })
    }

    /// The bytes, zero padded, as words.
    #[inline]
    pub fn to_words(&self) -> [i64; 3] {
        let mut words = [0; 3];
        for (word, bytes) in words.iter_mut().zip(self.data.chunks(size_of::<i64>())) {
            let mut padded = [0; size_of::<i64>()];
            padded
                .iter_mut()
                .zip(bytes)
                .for_each(|(to, from)| *to = *from);
            *word = i64::from_ne_bytes(padded);
        }
        words
    }

    /// Makes a build ID of what [`to_words`](Self::to_words) has returned for one of that size.
    #[inline]
    pub fn from_words(words: &[i64; 3], size: u8) -> Option<Self> {
        if size == 0 || usize::from(size) > BUILD_ID_SIZE_MAX {
            return None;
        }

        let mut data = *words.as_bytes().first_chunk()?;
        data.iter_mut()
            .skip(usize::from(size))
            .for_each(|byte: &mut u8| *byte = 0);

        // INVARIANT: The size was checked above; the rest of `data` is zero.
        Some(Self { size, data })
    }

    /// The true length, 1 to [`BUILD_ID_SIZE_MAX`].
    #[inline]
    pub fn size(&self) -> u8 {
        self.size
    }

    /// The bytes, zero padded.
    #[inline]
    pub fn padded(&self) -> &[u8; BUILD_ID_SIZE_MAX] {
        &self.data
    }
}

/// Reads `N` bytes of `bytes` from offset `at`.
#[inline]
fn read<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>().copied()
}

#[inline]
fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    read(bytes, at).map(u16::from_ne_bytes)
}

#[inline]
fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    read(bytes, at).map(u32::from_ne_bytes)
}

#[inline]
fn read_u64(bytes: &[u8], at: usize) -> Option<u64> {
    read(bytes, at).map(u64::from_ne_bytes)
}

#[cfg(CONFIG_PERF_BUILD_ID_OFFSET_KUNIT_TEST)]
#[macros::kunit_tests(rust_kernel_build_id)]
mod tests {
    use super::*;

    const BUILD_ID: u32 = 3;

    /// Appends a note of `kind`.
    fn note(to: &mut KVec<u8>, kind: u32, name: &[u8], desc: &[u8]) -> Result {
        for field in [name.len() as u32, desc.len() as u32, kind] {
            to.extend_from_slice(&field.to_ne_bytes(), GFP_KERNEL)?;
        }
        for part in [name, desc] {
            to.extend_from_slice(part, GFP_KERNEL)?;
            while to.len() % 4 != 0 {
                to.push(0, GFP_KERNEL)?;
            }
        }
        Ok(())
    }

    /// A 64-bit ELF file of one program header and these notes, which it says are `size` bytes.
    fn elf(notes: &[u8], size: u64) -> Result<KVec<u8>> {
        let mut file = KVec::new();
        file.extend_from_slice(b"\x7fELF\x02\x01\x01", GFP_KERNEL)?;
        file.resize(64, 0, GFP_KERNEL)?;
        file[32..40].copy_from_slice(&64u64.to_ne_bytes());
        file[54..56].copy_from_slice(&56u16.to_ne_bytes());
        file[56..58].copy_from_slice(&1u16.to_ne_bytes());
        file.extend_from_slice(&bindings::PT_NOTE.to_ne_bytes(), GFP_KERNEL)?;
        file.resize(120, 0, GFP_KERNEL)?;
        file[72..80].copy_from_slice(&120u64.to_ne_bytes());
        file[96..104].copy_from_slice(&size.to_ne_bytes());
        file.extend_from_slice(notes, GFP_KERNEL)?;
        Ok(file)
    }

    #[test]
    fn finds_the_id_behind_other_notes() -> Result {
        for size in [1usize, 5, 8, 16, 20] {
            let id = &[0xa5u8; 20][..size];
            let mut notes = KVec::new();
            note(&mut notes, 1, b"GNU\0", &[0; 16])?;
            note(&mut notes, BUILD_ID, b"Xen\0", &[1; 8])?;
            note(&mut notes, BUILD_ID, b"GNU\0", id)?;

            let found = BuildId::of_elf(&elf(&notes, notes.len() as u64)?).ok_or(ENOENT)?;
            assert_eq!(usize::from(found.size()), size);
            assert_eq!(&found.padded()[..size], id);
            assert!(found.padded()[size..].iter().all(|byte| *byte == 0));
        }
        Ok(())
    }

    #[test]
    fn refuses_what_is_no_build_id() -> Result {
        let mut notes = KVec::new();
        note(&mut notes, BUILD_ID, b"GNU\0", &[1; 21])?;
        assert!(BuildId::of_elf(&elf(&notes, notes.len() as u64)?).is_none());

        let mut notes = KVec::new();
        note(&mut notes, BUILD_ID, b"GNU\0", &[])?;
        assert!(BuildId::of_elf(&elf(&notes, notes.len() as u64)?).is_none());

        assert!(BuildId::of_elf(b"").is_none());
        assert!(BuildId::of_elf(b"\x7fELF").is_none());
        Ok(())
    }

    #[test]
    fn survives_sizes_that_lie() -> Result {
        let mut notes = KVec::new();
        note(&mut notes, BUILD_ID, b"GNU\0", &[1; 20])?;
        for size in [0, 11, notes.len() as u64 + 1, u64::MAX] {
            assert!(BuildId::of_elf(&elf(&notes, size)?).is_none());
        }
        for field in [0, 4] {
            let mut lie = KVec::new();
            lie.extend_from_slice(&notes, GFP_KERNEL)?;
            lie[field..field + 4].copy_from_slice(&u32::MAX.to_ne_bytes());
            assert!(BuildId::of_elf(&elf(&lie, lie.len() as u64)?).is_none());
        }
        Ok(())
    }

    #[test]
    fn reads_the_status_word() {
        let frame = |status: u32| Frame {
            status: status | 1 << 31,
            ..Frame::new(0x1000)
        };

        assert_eq!(Frame::new(0x1000).outcome(), Outcome::Busy);
        assert!(Frame::new(0x1000).is_new() && !Frame::new(0x1000).is_read());
        assert_eq!(frame(1 | 20 << 8).outcome(), Outcome::Resolved { size: 20 });
        assert_eq!(frame(1 | 1 << 8).outcome(), Outcome::Resolved { size: 1 });
        assert_eq!(frame(1).outcome(), Outcome::Vdso);
        for (errno, outcome) in [
            (bindings::ENOENT, Outcome::NoFile),
            (bindings::ENXIO, Outcome::NoFile),
            (bindings::EINVAL, Outcome::NoBuildId),
            (bindings::EIO, Outcome::NoBuildId),
            (bindings::EFAULT, Outcome::NotResident),
            (bindings::EBUSY, Outcome::Busy),
            (bindings::EINTR, Outcome::Busy),
            (bindings::ESRCH, Outcome::NoMm),
            (bindings::ENOMEM, Outcome::NoMemory),
        ] {
            assert_eq!(frame(2 | errno << 8).outcome(), outcome);
            assert!(frame(2 | errno << 8).is_read());
        }
    }
}
