// SPDX-License-Identifier: GPL-2.0
//! Names as the programmer wrote them: Rust (both manglings, without the hash) and C++.

use std::borrow::Cow;

/// Symbols longer than this are shown as they are. Demangling takes time and memory that grow
/// faster than the name, and names come from files we do not trust.
const LONGEST: usize = 64 << 10;

/// How deep the types of a C++ name may nest.
const DEEPEST: u32 = 96;

/// The demangled name; the name itself if it is not mangled, or not in a way we know.
pub fn demangle(name: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(name);
    if text.len() > LONGEST || !text.starts_with('_') {
        return text;
    }
    if let Ok(rust) = rustc_demangle::try_demangle(&text) {
        return format!("{rust:#}").into();
    }
    match cplusplus(&text) {
        Some(demangled) => demangled.into(),
        None => text,
    }
}

fn cplusplus(name: &str) -> Option<String> {
    if !name.starts_with("_Z") && !name.starts_with("__Z") {
        return None;
    }
    let parse = cpp_demangle::ParseOptions::default().recursion_limit(DEEPEST);
    let symbol = cpp_demangle::Symbol::new_with_options(name, &parse).ok()?;
    let show = cpp_demangle::DemangleOptions::new().recursion_limit(DEEPEST);
    symbol.demangle_with_options(&show).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_three_languages() {
        for (mangled, name) in [
            (&b"_ZN4core3fmt5write17h0123456789abcdefE"[..], "core::fmt::write"),
            (b"_RNvC6_123foo3bar", "123foo::bar"),
            (b"_Z4workiPKc", "work(int, char const*)"),
            (b"_Znwm", "operator new(unsigned long)"),
            (b"malloc", "malloc"),
            (b"__libc_start_main", "__libc_start_main"),
            (b"_ZN", "_ZN"),
            (b"\xff", "\u{fffd}"),
        ] {
            assert_eq!(demangle(mangled), name);
        }
    }

    #[test]
    fn hostile_names_end() {
        let deep = [b"_Z".as_slice(), &[b'P'; LONGEST * 2]].concat();
        assert_eq!(demangle(&deep).len(), deep.len());
        for repeated in ["S_", "I", "N", "PF", "T_", "1a"] {
            let name = format!("_Z1f{}", repeated.repeat(20_000));
            assert!(!demangle(name.as_bytes()).is_empty());
        }
    }
}
