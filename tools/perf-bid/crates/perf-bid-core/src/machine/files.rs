// SPDX-License-Identifier: GPL-2.0
//! What the names in map records stand for.
//!
//! A record with a build ID says it itself. Otherwise the table of build IDs at the end of the
//! file does, by path, which is what its writer found there when the recording was over. So it
//! is believed only as long as nothing speaks against it: two files that were mapped under
//! one name (it was replaced, or there are several mount namespaces), or two rows for it. Then
//! it cannot be told whose ID the row has, and none of them gets it.

use rustc_hash::FxHashMap;

use crate::abi::BuildId;
use crate::data::BuildIdRow;
use crate::place::Dso;
use crate::place::DsoId;
use crate::place::DsoKind;
use crate::place::Dsos;
use crate::record::FileKey;
use crate::record::text;

#[derive(Debug, Default)]
pub(super) struct Files {
    by_name: FxHashMap<Vec<u8>, Named>,
}

/// The files of one name.
#[derive(Debug, Default)]
struct Named {
    row: Row,
    /// The first inode that was mapped under the name.
    inode: Option<Inode>,
    claims: Vec<Claim>,
}

/// What the table says about a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Row {
    #[default]
    None,
    One(BuildId),
    Doubtful,
}

/// A build ID that the name goes with, or that none is known.
#[derive(Clone, Copy, Debug)]
struct Claim {
    build_id: Option<BuildId>,
    dso: DsoId,
    /// A record says so, not the table alone.
    by_record: bool,
}

#[derive(Clone, Copy, Debug)]
struct Inode {
    device: (u32, u32),
    number: u64,
    /// 0 if it is not known.
    generation: u64,
}

impl Inode {
    fn of(key: FileKey) -> Option<Self> {
        match key {
            FileKey::Inode { maj, min, ino, ino_generation } if ino != 0 => {
                Some(Self { device: (maj, min), number: ino, generation: ino_generation })
            }
            _ => None,
        }
    }

    fn differs(&self, other: &Self) -> bool {
        let generations = [self.generation, other.generation];
        (self.device, self.number) != (other.device, other.number)
            || !generations.contains(&0) && self.generation != other.generation
    }
}

impl Files {
    /// Takes in a row of the table.
    pub(super) fn add_row(&mut self, row: &BuildIdRow) {
        let named = self.by_name.entry(row.path.clone().into_bytes()).or_default();
        named.row = match named.row {
            Row::None => Row::One(row.build_id),
            Row::One(id) if id == row.build_id => named.row,
            _ => Row::Doubtful,
        };
    }

    /// The build ID that the table has for a name.
    pub(super) fn row(&self, name: &[u8]) -> Option<BuildId> {
        self.by_name.get(name)?.row.build_id()
    }

    /// The DSO of a mapping with this name and key.
    pub(super) fn dso(&mut self, name: &[u8], key: FileKey, dsos: &mut Dsos) -> DsoId {
        if let Some(named) = self.by_name.get_mut(name) {
            return named.dso(name, key, dsos);
        }
        let mut named = Named::default();
        let dso = named.dso(name, key, dsos);
        self.by_name.insert(name.to_vec(), named);
        dso
    }
}

impl Named {
    fn dso(&mut self, name: &[u8], key: FileKey, dsos: &mut Dsos) -> DsoId {
        if let Some(inode) = Inode::of(key) {
            self.see(inode, dsos);
        }
        let (build_id, by_record) = match key {
            FileKey::BuildId(id) => (Some(id), true),
            _ => (self.row.build_id(), false),
        };
        if let Some(claim) = self.claims.iter_mut().find(|claim| claim.build_id == build_id) {
            claim.by_record |= by_record;
            return claim.dso;
        }
        let kind = match name {
            b"[vdso]" | b"[vdso32]" | b"[vdsox32]" => DsoKind::Vdso,
            _ => DsoKind::File,
        };
        let dso = dsos.intern(Dso { kind, path: text(name).into(), build_id });
        self.claims.push(Claim { build_id, dso, by_record });
        dso
    }

    /// If the name had another inode before, the table's ID can be that of either.
    fn see(&mut self, inode: Inode, dsos: &mut Dsos) {
        let first = *self.inode.get_or_insert(inode);
        if !first.differs(&inode) || self.row == Row::Doubtful {
            return;
        }
        self.row = Row::Doubtful;
        for claim in self.claims.iter_mut().filter(|claim| !claim.by_record) {
            claim.build_id = None;
            dsos.forget_build_id(claim.dso);
        }
    }
}

impl Row {
    fn build_id(self) -> Option<BuildId> {
        match self {
            Self::One(id) => Some(id),
            Self::None | Self::Doubtful => None,
        }
    }
}

/// Whether the name of a mapping says that there is no file behind it.
pub(super) fn is_memory(name: &[u8]) -> bool {
    let starts = |with: &[u8]| name.starts_with(with);
    name.is_empty()
        || starts(b"[")
        || starts(b"//anon")
        || starts(b"/dev/zero")
        || starts(b"/anon_hugepage")
        || starts(b"/SYSV")
        || starts(b"/memfd:")
        || starts(b"anon_inode:")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(byte: u8) -> BuildId {
        BuildId::new(&[byte; 20]).unwrap()
    }

    fn row(path: &str, byte: u8) -> BuildIdRow {
        BuildIdRow { build_id: id(byte), cpumode: 2, path: path.into() }
    }

    fn inode(ino: u64, ino_generation: u64) -> FileKey {
        FileKey::Inode { maj: 8, min: 1, ino, ino_generation }
    }

    fn claimed(dsos: &Dsos, dso: DsoId) -> Option<BuildId> {
        dsos.get(dso).unwrap().build_id
    }

    #[test]
    fn the_table_names_what_is_mapped() {
        let (mut files, mut dsos) = (Files::default(), Dsos::default());
        files.add_row(&row("/bin/x", 1));
        files.add_row(&row("/bin/x", 1));
        let by_path = files.dso(b"/bin/x", FileKey::None, &mut dsos);
        assert_eq!(claimed(&dsos, by_path), Some(id(1)));
        // A tool that makes up records does not know the generation.
        for key in [inode(5, 0), inode(5, 77), inode(5, 0)] {
            assert_eq!(files.dso(b"/bin/x", key, &mut dsos), by_path);
        }
        let other = files.dso(b"/bin/y", inode(5, 0), &mut dsos);
        assert_eq!(claimed(&dsos, other), None);
        assert_eq!(files.row(b"/bin/x"), Some(id(1)));
    }

    #[test]
    fn a_file_that_was_replaced_has_no_id_from_the_table() {
        for second in [inode(6, 0), inode(5, 78)] {
            let (mut files, mut dsos) = (Files::default(), Dsos::default());
            files.add_row(&row("/bin/x", 1));
            let before = files.dso(b"/bin/x", inode(5, 77), &mut dsos);
            assert_eq!(claimed(&dsos, before), Some(id(1)));
            let after = files.dso(b"/bin/x", second, &mut dsos);
            assert_eq!(claimed(&dsos, after), None);
            assert_eq!(claimed(&dsos, before), None);
            // What a record says stands.
            let certain = files.dso(b"/bin/x", FileKey::BuildId(id(1)), &mut dsos);
            assert_eq!(claimed(&dsos, certain), Some(id(1)));
        }
    }

    #[test]
    fn what_a_record_says_outlives_a_doubt() {
        let (mut files, mut dsos) = (Files::default(), Dsos::default());
        files.add_row(&row("/bin/x", 1));
        let dso = files.dso(b"/bin/x", inode(5, 0), &mut dsos);
        assert_eq!(files.dso(b"/bin/x", FileKey::BuildId(id(1)), &mut dsos), dso);
        files.dso(b"/bin/x", inode(6, 0), &mut dsos);
        assert_eq!(claimed(&dsos, dso), Some(id(1)));
    }

    #[test]
    fn two_ids_of_one_path_are_two_files() {
        let (mut files, mut dsos) = (Files::default(), Dsos::default());
        let first = files.dso(b"/bin/x", FileKey::BuildId(id(1)), &mut dsos);
        let second = files.dso(b"/bin/x", FileKey::BuildId(id(2)), &mut dsos);
        assert_ne!(first, second);
        assert_eq!(files.dso(b"/bin/x", FileKey::BuildId(id(1)), &mut dsos), first);
    }

    #[test]
    fn rows_that_contradict_each_other_say_nothing() {
        let (mut files, mut dsos) = (Files::default(), Dsos::default());
        files.add_row(&row("/bin/x", 1));
        files.add_row(&row("/bin/x", 2));
        let dso = files.dso(b"/bin/x", inode(5, 0), &mut dsos);
        assert_eq!(claimed(&dsos, dso), None);
    }

    #[test]
    fn memory_is_told_from_files() {
        let memory: [&[u8]; 9] = [
            b"",
            b"//anon",
            b"[heap]",
            b"[stack]",
            b"/dev/zero (deleted)",
            b"/anon_hugepage (deleted)",
            b"/SYSV00000000 (deleted)",
            b"/memfd:jit (deleted)",
            b"anon_inode:[x]",
        ];
        for name in memory {
            assert!(is_memory(name), "{}", text(name));
        }
        for name in [&b"/bin/x"[..], b"/bin/x (deleted)", b"//toolong", b"/dev/shm/x"] {
            assert!(!is_memory(name), "{}", text(name));
        }
    }
}
