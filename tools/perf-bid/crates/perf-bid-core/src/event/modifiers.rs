// SPDX-License-Identifier: GPL-2.0
//! What stands after the colon of an event: `cycles:upp`.

use crate::abi::flag;
use crate::attr::Attr;

/// The highest `precise_ip`.
const PRECISE_MAX: u8 = 3;

/// A parsed list of modifiers.
#[derive(Debug, Default)]
pub struct Modifiers {
    only: Vec<char>,
    flags: u64,
    precise: u8,
    pub max_precise: bool,
}

impl Modifiers {
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("empty list of modifiers after the colon".to_owned());
        }
        let mut parsed = Self::default();
        for letter in text.chars() {
            match letter {
                'u' | 'k' | 'h' | 'G' | 'H' => parsed.only.push(letter),
                'I' => parsed.flags |= flag::EXCLUDE_IDLE,
                'D' => parsed.flags |= flag::PINNED,
                'e' => parsed.flags |= flag::EXCLUSIVE,
                'p' => parsed.precise += 1,
                'P' => parsed.max_precise = true,
                other => {
                    return Err(format!("modifier `{other}` is not one of u k h G H I D e p P"));
                }
            }
            if parsed.precise > PRECISE_MAX {
                return Err("modifier `p` can be given 3 times at most".to_owned());
            }
        }
        if parsed.max_precise {
            parsed.precise = PRECISE_MAX;
        }
        Ok(parsed)
    }

    pub fn apply(&self, mut attr: Attr) -> Attr {
        attr.flags |= self.flags
            | self.excluded(&[
                ('u', flag::EXCLUDE_USER),
                ('k', flag::EXCLUDE_KERNEL),
                ('h', flag::EXCLUDE_HV),
            ])
            | self.excluded(&[('H', flag::EXCLUDE_HOST), ('G', flag::EXCLUDE_GUEST)]);
        with_precise(attr, self.precise)
    }

    /// Of a set of modes, those that are not named, if any is.
    fn excluded(&self, modes: &[(char, u64)]) -> u64 {
        let named = |letter: &char| self.only.contains(letter);
        if !modes.iter().any(|(letter, _)| named(letter)) {
            return 0;
        }
        modes.iter().filter(|(letter, _)| !named(letter)).fold(0, |flags, (_, flag)| flags | flag)
    }
}

/// `attr` with this `precise_ip`.
pub fn with_precise(mut attr: Attr, precise: u8) -> Attr {
    let all = u64::from(PRECISE_MAX) * flag::PRECISE_IP;
    attr.flags = (attr.flags & !all) | (u64::from(precise.min(PRECISE_MAX)) * flag::PRECISE_IP);
    attr
}

/// The `precise_ip` of `attr`.
pub fn precise(attr: &Attr) -> u8 {
    (attr.flags / flag::PRECISE_IP) as u8 & PRECISE_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(text: &str) -> u64 {
        Modifiers::parse(text).unwrap().apply(Attr::default()).flags
    }

    #[test]
    fn what_is_not_named_is_excluded() {
        assert_eq!(flags("u"), flag::EXCLUDE_KERNEL | flag::EXCLUDE_HV);
        assert_eq!(flags("k"), flag::EXCLUDE_USER | flag::EXCLUDE_HV);
        assert_eq!(flags("uk"), flag::EXCLUDE_HV);
        assert_eq!(flags("ukh"), 0);
        assert_eq!(flags("G"), flag::EXCLUDE_HOST);
        assert_eq!(flags("H"), flag::EXCLUDE_GUEST);
        assert_eq!(flags("GH"), 0);
    }

    #[test]
    fn the_rest_adds_up() {
        assert_eq!(flags("IDe"), flag::EXCLUDE_IDLE | flag::PINNED | flag::EXCLUSIVE);
        assert_eq!(flags("pp"), 2 << 15);
        assert_eq!(flags("P"), 3 << 15);
        assert_eq!(precise(&with_precise(Attr { flags: !0, ..Attr::default() }, 1)), 1);
    }
}
