// SPDX-License-Identifier: GPL-2.0
//! Where functions begin in a file without symbols: the unwind table that nearly every
//! executable carries for exceptions (`.eh_frame_hdr` and `.eh_frame`, Linux Standard Base,
//! "Exception Frames") has an entry for each.
//!
//! A name it does not give, but samples of one function can be told from those of another.

use gimli::BaseAddresses;
use gimli::EhFrame;
use gimli::EhFrameHdr;
use gimli::EndianSlice;
use gimli::ParsedEhFrameHdr;
use gimli::RunTimeEndian;
use gimli::UnwindSection;
use object::Object;
use object::ObjectSection;

type Bytes<'a> = EndianSlice<'a, RunTimeEndian>;

/// The unwind table of one ELF file.
#[derive(Debug)]
pub struct Functions<'a> {
    header: ParsedEhFrameHdr<Bytes<'a>>,
    frames: EhFrame<Bytes<'a>>,
    bases: BaseAddresses,
}

impl<'a> Functions<'a> {
    /// Finds the table in a file's bytes; `None` if there is none that can be read.
    pub fn parse(data: &'a [u8]) -> Option<Self> {
        let file = object::File::parse(data).ok()?;
        let endian =
            if file.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
        let address_size = if file.is_64() { 8 } else { 4 };
        let header = file.section_by_name(".eh_frame_hdr")?;
        let frames = file.section_by_name(".eh_frame")?;
        let bases = BaseAddresses::default()
            .set_eh_frame_hdr(header.address())
            .set_eh_frame(frames.address());
        let header =
            EhFrameHdr::new(header.data().ok()?, endian).parse(&bases, address_size).ok()?;
        let mut frames = EhFrame::new(frames.data().ok()?, endian);
        frames.set_address_size(address_size);
        Some(Self { header, frames, bases })
    }

    /// Virtual address of the start of the function that `address` is in.
    pub fn start_of(&self, address: u64) -> Option<u64> {
        let table = self.header.table()?;
        let entry = table
            .fde_for_address(&self.frames, &self.bases, address, EhFrame::cie_from_offset)
            .ok()?;
        Some(entry.initial_address())
    }
}

#[cfg(test)]
mod tests {
    use object::ObjectSymbol;

    use super::*;

    #[test]
    fn finds_this_very_function() {
        let data = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let functions = Functions::parse(&data).unwrap();
        let file = object::File::parse(&*data).unwrap();
        let main = file.symbols().find(|symbol| symbol.name() == Ok("main")).unwrap();
        let start = main.address();
        assert_eq!(functions.start_of(start), Some(start));
        assert_eq!(functions.start_of(start + 1), Some(start));
        assert_eq!(functions.start_of(0), None);
        assert!(Functions::parse(&data[..data.len() / 2]).is_none());
        assert!(Functions::parse(b"\x7fELF").is_none());
    }
}
