// SPDX-License-Identifier: GPL-2.0
//! The tree of a row as text, drawn as perf draws it:
//!
//! ```text
//!             |
//!             |--16.28%--main
//!             |          mid
//!             |          |
//!             |           --1.38%--leaf
//!             |
//!              --0.69%--other
//! ```
//!
//! A function that is all there is below another stands under it, without a share.

use std::io;
use std::io::Write;

use super::columns::printable;
use super::rows::Row;
use super::table::Layout;
use super::tree::Branch;
use super::view::Graph;
use super::view::View;
use super::view::share;
use crate::cli::SortKey;

/// Where trees begin.
const MARGIN: &str = "            ";

/// What is left to write.
struct Todo {
    prefix: String,
    branch: Branch,
    /// What shares of the branch are shares of.
    whole: u64,
    /// Nothing comes below it at its level.
    last: bool,
}

/// Writes the tree of a row and an empty line, or nothing if it has no branches.
pub fn write(
    out: &mut impl Write,
    view: &View<'_>,
    row: &Row,
    graph: Graph,
    layout: &Layout,
) -> io::Result<()> {
    let tree = Tree { view, graph, layout };
    let mut first = Branch::first(&view.calls, view.rows.starts(row), graph.order);
    first.retain(|branch| tree.is_wanted(branch, row.total.period));
    let mut todo = Vec::new();
    match <[Branch; 1]>::try_from(first) {
        Ok([only]) if tree.is_row(&only, row) => tree.root(out, only, &mut todo)?,
        Ok([only]) => tree.push(&mut todo, vec![only], MARGIN, row.total.period),
        Err(many) => tree.push(&mut todo, many, MARGIN, row.total.period),
    }
    let any = !todo.is_empty();
    while let Some(next) = todo.pop() {
        tree.branch(out, next, &mut todo)?;
    }
    if any { writeln!(out) } else { Ok(()) }
}

struct Tree<'a> {
    view: &'a View<'a>,
    graph: Graph,
    layout: &'a Layout,
}

impl Tree<'_> {
    fn is_wanted(&self, branch: &Branch, above: u64) -> bool {
        let whole = if self.graph.fractal { above } else { self.view.whole() };
        share(branch.weight.period, whole) >= self.graph.limit
    }

    /// Whether a branch says no more than its row.
    fn is_row(&self, branch: &Branch, row: &Row) -> bool {
        branch.symbol == row.symbol && self.view.columns.keys().contains(&SortKey::Symbol)
    }

    /// Goes on below the row's own function.
    fn root(&self, out: &mut impl Write, root: Branch, todo: &mut Vec<Todo>) -> io::Result<()> {
        let below = root.below(&self.view.calls, self.graph.order);
        let only = match below.as_slice() {
            [only] if only.weight == root.weight => only,
            _ => {
                self.push(todo, below, MARGIN, root.weight.period);
                return Ok(());
            }
        };
        writeln!(out, "{MARGIN}|")?;
        self.line(out, &format!("{MARGIN}---{}", self.name(only)))?;
        self.chain(out, only.clone(), &format!("{MARGIN}   "), todo)?;
        // The caller's empty line is due even if nothing branches off.
        if todo.is_empty() { writeln!(out) } else { Ok(()) }
    }

    fn branch(&self, out: &mut impl Write, next: Todo, todo: &mut Vec<Todo>) -> io::Result<()> {
        let Todo { prefix, branch, whole, last } = next;
        writeln!(out, "{prefix}|")?;
        let percent = share(branch.weight.period, whole);
        let bar = if last { ' ' } else { '|' };
        let style = self.layout.style(percent);
        let text = format!("{prefix}{bar}--{percent:.2}%--{}", self.name(&branch));
        let text = self.layout.cut(&text);
        let at = prefix.len() + 3;
        let number = text.get(at..).and_then(|rest| rest.find('%')).map_or(at, |end| at + end + 1);
        match (text.get(..at), text.get(at..number), text.get(number..)) {
            (Some(before), Some(number), Some(after)) => {
                writeln!(out, "{before}{style}{number}{style:#}{after}")?;
            }
            _ => writeln!(out, "{text}")?,
        }
        self.chain(out, branch, &format!("{prefix}{bar}          "), todo)
    }

    /// Writes what comes below `branch` one by one, until the ways part.
    fn chain(
        &self,
        out: &mut impl Write,
        mut branch: Branch,
        prefix: &str,
        todo: &mut Vec<Todo>,
    ) -> io::Result<()> {
        loop {
            let below = branch.below(&self.view.calls, self.graph.order);
            match <[Branch; 1]>::try_from(below) {
                Ok([only]) if only.weight == branch.weight => {
                    self.line(out, &format!("{prefix}{}", self.name(&only)))?;
                    branch = only;
                }
                Ok([only]) => {
                    self.push(todo, vec![only], prefix, branch.weight.period);
                    return Ok(());
                }
                Err(many) => {
                    self.push(todo, many, prefix, branch.weight.period);
                    return Ok(());
                }
            }
        }
    }

    fn push(&self, todo: &mut Vec<Todo>, mut branches: Vec<Branch>, prefix: &str, above: u64) {
        branches.retain(|branch| self.is_wanted(branch, above));
        let whole = if self.graph.fractal { above } else { self.view.whole() };
        let last = branches.len().saturating_sub(1);
        for (at, branch) in branches.into_iter().enumerate().rev() {
            todo.push(Todo { prefix: prefix.to_owned(), branch, whole, last: at == last });
        }
    }

    fn name(&self, branch: &Branch) -> String {
        printable(&self.view.names.label(branch.symbol).to_string())
    }

    fn line(&self, out: &mut impl Write, text: &str) -> io::Result<()> {
        writeln!(out, "{}", self.layout.cut(text))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::fixture;
    use super::super::fixture::Chain;
    use super::super::table;
    use super::super::table::Layout;

    const CHAINS: &[Chain<'_>] = &[
        ("a", &["main", "mid", "leaf"], 60),
        ("a", &["main", "mid", "other"], 20),
        ("a", &["main", "leaf"], 15),
        ("a", &["main"], 5),
    ];

    fn text(args: &[&str]) -> String {
        let (profile, names) = fixture::profile(&[CHAINS]);
        let view = fixture::view(&profile, &names, args);
        let mut out = Vec::new();
        table::write(&mut out, &view, &Layout::default()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn callees_are_below_callers() {
        let expected = "\
# Samples: 4 of event 'event-0'
# Event count (approx.): 100
#
# Children      Self  Symbol
# ........  ........  .........
#
   100.00%     5.00%  [.] main
            |
            |--80.00%--mid
            |          |
            |          |--60.00%--leaf
            |          |
            |           --20.00%--other
            |
             --15.00%--leaf

    80.00%     0.00%  [.] mid
            |
            |--60.00%--leaf
            |
             --20.00%--other

    75.00%    75.00%  [.] leaf
    20.00%    20.00%  [.] other
";
        assert_eq!(text(&["--sort", "sym"]), expected);
    }

    #[test]
    fn callers_are_below_callees() {
        let expected = "\
# Samples: 4 of event 'event-0'
# Event count (approx.): 100
#
# Overhead  Symbol
# ........  .........
#
    75.00%  [.] leaf
            |
            |--60.00%--mid
            |          main
            |
             --15.00%--main

    20.00%  [.] other
            |
            ---mid
               main

     5.00%  [.] main
";
        assert_eq!(text(&["--sort", "sym", "--no-children"]), expected);
    }

    #[test]
    fn light_branches_are_left_out_and_shares_can_be_of_the_branch() {
        let shown = text(&["--sort", "sym", "--no-children", "-g", "caller,30,fractal"]);
        assert!(shown.contains("--100.00%--main"), "{shown}");
        assert!(shown.contains("--80.00%--mid"), "{shown}");
        assert!(!shown.contains("--20.00%"), "{shown}");
        let limited = text(&["--sort", "sym", "--percent-limit", "50"]);
        assert!(limited.ends_with("# (1 more rows)\n"), "{limited}");
        assert!(!limited.contains("--20.00%"), "{limited}");
        let none = text(&["--sort", "sym", "-g", "none", "-n"]);
        assert!(none.contains("# Children      Self       Samples  Symbol\n"), "{none}");
        let rows = "    75.00%    75.00%             2  [.] leaf\n    20.00%    20.00%             1  [.] other\n";
        assert!(none.ends_with(rows), "{none}");
    }
}
