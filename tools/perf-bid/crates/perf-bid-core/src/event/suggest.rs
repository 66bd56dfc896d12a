// SPDX-License-Identifier: GPL-2.0
//! The known names that are closest to one that is not.

use std::fmt;

/// Most names to suggest.
const MOST: usize = 3;

/// `; did you mean …?`, or nothing if no name is close.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DidYouMean(Vec<String>);

impl DidYouMean {
    pub(super) fn new(name: &str, known: impl Iterator<Item = String>) -> Self {
        // A third of the letters may be wrong.
        let limit = (name.chars().count() / 3).max(1);
        let mut close: Vec<_> = known
            .filter_map(|known| {
                let distance = distance(name, &known);
                (distance <= limit).then_some((distance, known))
            })
            .collect();
        close.sort();
        close.dedup();
        Self(close.into_iter().map(|(_, known)| known).take(MOST).collect())
    }
}

impl fmt::Display for DidYouMean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.0.iter().enumerate() {
            write!(f, "{}`{name}`", if index == 0 { "; did you mean " } else { " or " })?;
        }
        if self.0.is_empty() { Ok(()) } else { f.write_str("?") }
    }
}

/// Letters to insert, remove or replace to make `a` of `b` (Levenshtein), whatever their case.
fn distance(a: &str, b: &str) -> usize {
    let lower = |text: &str| text.to_lowercase().chars().collect::<Vec<_>>();
    let (a, b) = (lower(a), lower(b));
    // Distances from the letters of `a` so far to every beginning of `b`.
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut next = Vec::with_capacity(row.len());
        let mut left = i + 1;
        next.push(left);
        for ((to, above_left), above) in b.iter().zip(&row).zip(row.iter().skip(1)) {
            left = (above_left + usize::from(from != to)).min(above + 1).min(left + 1);
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", ""), 3);
        assert_eq!(distance("LLC", "llc"), 0);
    }

    #[test]
    fn only_close_names_are_suggested() {
        let known = ["cpu-clock", "task-clock", "page-faults"];
        let suggest = |name| DidYouMean::new(name, known.iter().map(|&name| name.to_owned()));
        assert_eq!(suggest("cpu-clok").to_string(), "; did you mean `cpu-clock`?");
        assert_eq!(suggest("xyz").to_string(), "");
    }
}
