// SPDX-License-Identifier: GPL-2.0
//! `perf-bid check`: what this machine lets this user do, and what to do about the rest.
//!
//! Nothing is guessed from version numbers: events are opened, files are read.

mod machine;
mod symbols;

use std::io;
use std::io::Write;
use std::process::ExitCode;

use anstyle::AnsiColor;
use anstyle::Style;
use anyhow::Context;
use anyhow::Result;
use serde_json::Value;
use serde_json::json;

use crate::cli;

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// As it should be.
    Good,
    /// It can do without, but less well.
    Limited,
    /// It stands in the way of recording build IDs.
    Bad,
}

/// One thing that was looked at.
#[derive(Clone, Debug)]
pub struct Finding {
    /// For programs.
    pub key: &'static str,
    /// For people.
    pub title: &'static str,
    /// How it is.
    pub state: State,
    /// What was found.
    pub found: String,
    /// What to do about it.
    pub advice: Option<String>,
}

impl Finding {
    /// Something that is as it should be.
    pub fn good(key: &'static str, title: &'static str, found: impl Into<String>) -> Self {
        Self { key, title, state: State::Good, found: found.into(), advice: None }
    }

    /// The same thing, if it is not so good after all.
    pub fn unless(self, good: bool, state: State, found: &str, advice: &str) -> Self {
        if good {
            return self;
        }
        Self { state, found: found.to_owned(), advice: Some(advice.to_owned()), ..self }
    }
}

/// Runs `perf-bid check`.
pub fn run(args: &cli::Check) -> Result<ExitCode> {
    let groups = [
        ("Recording", machine::recording()),
        ("Limits of this user", machine::limits()),
        ("Symbols", symbols::places()),
        ("perf", symbols::perf()),
    ];
    let bad = groups.iter().flat_map(|(_, findings)| findings).any(|f| f.state == State::Bad);
    let written = if args.json { write_json(&groups, !bad) } else { write(&groups, !bad) };
    written.context("cannot write to standard output")?;
    Ok(if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn write(groups: &[(&str, Vec<Finding>)], can_record: bool) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    let colour = |colour: AnsiColor| Style::new().fg_color(Some(colour.into()));
    let (bold, dim) = (Style::new().bold(), Style::new().dimmed());
    let findings = groups.iter().flat_map(|(_, findings)| findings);
    let width = findings.map(|finding| finding.title.chars().count()).max().unwrap_or(0);
    for (name, findings) in groups {
        writeln!(out, "{bold}{name}{bold:#}")?;
        for finding in findings {
            let (mark, style) = match finding.state {
                State::Good => ('✓', colour(AnsiColor::Green)),
                State::Limited => ('!', colour(AnsiColor::Yellow)),
                State::Bad => ('✗', colour(AnsiColor::Red)),
            };
            let Finding { title, found, .. } = finding;
            writeln!(out, "  {style}{mark}{style:#} {title:width$}  {found}")?;
            if let Some(advice) = &finding.advice {
                writeln!(out, "    {:width$}  {dim}→ {advice}{dim:#}", "")?;
            }
        }
    }
    let verdict = if can_record {
        "Build IDs can be recorded here."
    } else {
        "Build IDs cannot be recorded here; recordings from elsewhere can be read."
    };
    writeln!(out, "\n{bold}{verdict}{bold:#}")?;
    out.flush()
}

fn write_json(groups: &[(&str, Vec<Finding>)], can_record: bool) -> io::Result<()> {
    let checks: Vec<Value> = groups
        .iter()
        .flat_map(|(_, findings)| findings)
        .map(|finding| {
            let state = match finding.state {
                State::Good => "good",
                State::Limited => "limited",
                State::Bad => "bad",
            };
            json!({
                "check": finding.key, "state": state, "found": finding.found,
                "advice": finding.advice,
            })
        })
        .collect();
    let value = json!({ "can_record_build_ids": can_record, "checks": checks });
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &value)?;
    writeln!(out)
}
