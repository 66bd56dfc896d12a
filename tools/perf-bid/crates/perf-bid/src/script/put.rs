// SPDX-License-Identifier: GPL-2.0
//! Numbers and names as bytes at the end of a buffer. `format!` costs more than all the rest
//! of a line.

/// Decimal digits, right-aligned in `width`.
pub fn dec(out: &mut Vec<u8>, value: u64, width: usize) {
    padded(out, value, 10, b' ', width);
}

/// The ID of a process or thread. The kernel writes -1 for one that is past its end.
pub fn id(out: &mut Vec<u8>, id: u32, width: usize) {
    match id {
        u32::MAX => right(out, "-1", width),
        id => dec(out, id.into(), width),
    }
}

/// Decimal digits with leading zeros.
pub fn dec_zeros(out: &mut Vec<u8>, value: u64, width: usize) {
    padded(out, value, 10, b'0', width);
}

/// Hexadecimal digits, right-aligned in `width`.
pub fn hex(out: &mut Vec<u8>, value: u64, width: usize) {
    padded(out, value, 16, b' ', width);
}

/// `0x` and hexadecimal digits.
pub fn hex0x(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(b"0x");
    hex(out, value, 0);
}

/// Text, right-aligned in `width` characters.
pub fn right(out: &mut Vec<u8>, text: &str, width: usize) {
    // Counting bytes is enough to see that nothing is missing, and nearly always so.
    if text.len() < width {
        out.resize(out.len() + width.saturating_sub(text.chars().count()), b' ');
    }
    out.extend_from_slice(text.as_bytes());
}

/// Text as a JSON string.
pub fn json(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for &byte in text.as_bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            0..0x20 => {
                out.extend_from_slice(b"\\u");
                padded(out, byte.into(), 16, b'0', 4);
            }
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

fn padded(out: &mut Vec<u8>, mut value: u64, base: u64, fill: u8, width: usize) {
    // No number has more than 20 digits, and no column is wider.
    let mut digits = [fill; 20];
    let mut len = 0;
    for digit in digits.iter_mut().rev() {
        if value == 0 && len > 0 {
            break;
        }
        let low = (value % base) as u8;
        *digit = if low < 10 { b'0' + low } else { b'a' - 10 + low };
        value /= base;
        len += 1;
    }
    let shown = len.max(width.min(digits.len()));
    out.extend_from_slice(digits.get(digits.len() - shown..).unwrap_or(&digits));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(put: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        put(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_as_format_writes_them() {
        for value in [0, 1, 9, 10, 0xfff, 123_456_789, 1 << 40, u64::MAX] {
            assert_eq!(put(|out| dec(out, value, 7)), format!("{value:7}"));
            assert_eq!(put(|out| dec(out, value, 0)), format!("{value}"));
            assert_eq!(put(|out| dec_zeros(out, value, 6)), format!("{value:06}"));
            assert_eq!(put(|out| hex(out, value, 16)), format!("{value:16x}"));
            assert_eq!(put(|out| hex0x(out, value)), format!("{value:#x}"));
        }
    }

    #[test]
    fn text_is_aligned_by_characters() {
        assert_eq!(put(|out| right(out, "né", 4)), "  né");
        assert_eq!(put(|out| right(out, "longer", 4)), "longer");
    }

    #[test]
    fn json_strings_are_read_back() {
        for text in ["", "a\"b\\c", "\u{1}\n\t\u{1f}", "é…"] {
            let written = put(|out| json(out, text));
            let read: String = serde_json::from_str(&written).unwrap();
            assert_eq!(read, text);
        }
    }
}
