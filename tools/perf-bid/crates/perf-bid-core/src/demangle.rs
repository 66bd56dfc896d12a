// SPDX-License-Identifier: GPL-2.0
//! Names as the programmer wrote them: Rust (both manglings, without the hash) and C++.

use std::borrow::Cow;
use std::fmt;

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
    // Each part of a name may stand for two earlier ones: what is written is limited, too.
    let mut short = Short(String::new());
    symbol.structured_demangle(&mut short, &show).ok()?;
    Some(tidy(&short.0))
}

/// A string that refuses to become longer than [`LONGEST`].
struct Short(String);

impl fmt::Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// Writes as other demanglers do what cpp_demangle has its own way for: numbers among template
/// arguments (`1u`, not `(unsigned int)1`), and no comma after the last one.
fn tidy(name: &str) -> String {
    const SUFFIXES: [(&str, &str); 6] = [
        ("(unsigned int)", "u"),
        ("(unsigned long long)", "ull"),
        ("(unsigned long)", "ul"),
        ("(long long)", "ll"),
        ("(long)", "l"),
        ("(int)", ""),
    ];
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(next) = rest.chars().next() {
        let number = SUFFIXES.iter().find_map(|(cast, suffix)| {
            let value = rest.strip_prefix(cast)?;
            let sign = usize::from(value.starts_with('-'));
            let digits = value.get(sign..)?.bytes().take_while(u8::is_ascii_digit).count();
            (digits > 0).then(|| (value.split_at_checked(sign + digits), suffix))
        });
        if let Some((Some((value, after)), suffix)) = number {
            out.extend([value, suffix]);
            rest = after;
        } else if let Some(after) = rest.strip_prefix(", >") {
            out.push('>');
            rest = after;
        } else {
            out.push(next);
            rest = rest.get(next.len_utf8()..).unwrap_or_default();
        }
    }
    out
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
            (b"_Z1fILj7ELin1EEvv", "void f<7u, -1>()"),
            (b"_ZN1A1fIJEEEvm", "void A::f<>(unsigned long)"),
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
        // Each level is twice as long as the one before.
        let mut bomb = "_Z1fSt4pairIiiE".to_owned();
        for level in 0..40 {
            let part = if level == 0 { "S_".to_owned() } else { format!("S{}_", level - 1) };
            bomb.push_str(&format!("St4pairI{part}{part}E"));
        }
        assert!(demangle(bomb.as_bytes()).len() <= LONGEST);
    }
}
