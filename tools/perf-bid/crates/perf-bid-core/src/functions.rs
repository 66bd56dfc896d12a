// SPDX-License-Identifier: GPL-2.0
//! Where functions begin in a file without symbols: the unwind table that nearly every
//! executable carries for exceptions (`.eh_frame_hdr` and `.eh_frame`, Linux Standard Base,
//! "Exception Frames") has an entry for each.
//!
//! A name it does not give, but samples of one function can be told from those of another.

use gimli::BaseAddresses;
use gimli::EhFrame;
use gimli::EhFrameHdr;
use gimli::EhFrameOffset;
use gimli::EndianSlice;
use gimli::ParsedEhFrameHdr;
use gimli::RunTimeEndian;
use gimli::UnwindSection;

use crate::elf::ElfInfo;

type Bytes<'a> = EndianSlice<'a, RunTimeEndian>;

/// The unwind table of one ELF file.
#[derive(Debug)]
pub struct Functions<'a> {
    header: ParsedEhFrameHdr<Bytes<'a>>,
    frames: EhFrame<Bytes<'a>>,
    bases: BaseAddresses,
}

impl<'a> Functions<'a> {
    /// Finds the table in the bytes of the file that `info` is about; `None` if there is none
    /// that can be read.
    pub fn parse(data: &'a [u8], info: &ElfInfo) -> Option<Self> {
        let endian = if info.big_endian { RunTimeEndian::Big } else { RunTimeEndian::Little };
        let address_size = if info.is_64 { 8 } else { 4 };
        let [header, frames] = [info.unwind[0]?, info.unwind[1]?];
        let bases =
            BaseAddresses::default().set_eh_frame_hdr(header.address).set_eh_frame(frames.address);
        let header =
            EhFrameHdr::new(header.bytes(data)?, endian).parse(&bases, address_size).ok()?;
        let mut frames = EhFrame::new(frames.bytes(data)?, endian);
        frames.set_address_size(address_size);
        Some(Self { header, frames, bases })
    }

    /// Virtual address of the start of the function that `address` is in.
    pub fn start_of(&self, address: u64) -> Option<u64> {
        let table = self.header.table()?;
        let pointer = table.lookup(address, &self.bases).ok()?.direct().ok()?;
        // gimli's own way from here subtracts without a look at which is larger.
        let into = pointer.checked_sub(self.header.eh_frame_ptr().direct().ok()?)?;
        let offset = EhFrameOffset(usize::try_from(into).ok()?);
        let cie = EhFrame::cie_from_offset;
        let entry = self.frames.fde_from_offset(&self.bases, offset, cie).ok()?;
        entry.contains(address).then(|| entry.initial_address())
    }
}

#[cfg(test)]
mod tests {
    use object::Object;
    use object::ObjectSymbol;

    use super::*;

    #[test]
    fn finds_this_very_function() {
        let data = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let info = ElfInfo::parse(&data).unwrap();
        let functions = Functions::parse(&data, &info).unwrap();
        let file = object::File::parse(&*data).unwrap();
        let main = file.symbols().find(|symbol| symbol.name() == Ok("main")).unwrap();
        let start = main.address();
        assert_eq!(functions.start_of(start), Some(start));
        assert_eq!(functions.start_of(start + 1), Some(start));
        assert_eq!(functions.start_of(0), None);
        assert!(Functions::parse(&data[..0x400], &info).is_none());
        assert!(Functions::parse(&data, &ElfInfo::default()).is_none());
    }
}
