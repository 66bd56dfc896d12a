// SPDX-License-Identifier: GPL-2.0
//! Tracepoints, by their directories in tracefs: `events/GROUP/NAME/id`.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use super::EventError;
use super::suggest::DidYouMean;

/// The tracepoints, as `(group, name, id)`, that the globs `group` and `event` stand for, in
/// order of their names. `name` is for the error.
pub fn find(
    tracefs: &[PathBuf],
    name: &str,
    group: &str,
    event: &str,
) -> Result<Vec<(String, String, u64)>, EventError> {
    let Some(root) = tracefs.iter().map(|root| root.join("events")).find(|root| root.is_dir())
    else {
        return Err(EventError::NoTracefs {
            name: name.to_owned(),
            path: format!("{group}/{event}"),
        });
    };
    let mut found = Vec::new();
    for group in directories(&root).into_iter().filter(|dir| matches(group, dir)) {
        let dir = root.join(&group);
        for event in directories(&dir).into_iter().filter(|dir| matches(event, dir)) {
            let id = std::fs::read_to_string(dir.join(&event).join("id"));
            let id = id.ok().and_then(|id| id.trim().parse().ok());
            found.extend(id.map(|id| (group.clone(), event, id)));
        }
    }
    if found.is_empty() {
        return Err(EventError::NoTracepoint {
            name: name.to_owned(),
            closest: DidYouMean::new(&format!("{group}:{event}"), names(&root)),
        });
    }
    Ok(found)
}

/// What `perf` wants to know of the tracepoints `names` (`group:name`) before it reads a file
/// that has them: tracefs' own descriptions of their fields, in the form of trace.dat(5),
/// version 6.
pub fn tracing_data(tracefs: &[PathBuf], names: &[&str]) -> io::Result<Vec<u8>> {
    let roots = tracefs.iter().map(|root| root.join("events"));
    let root = roots.into_iter().find(|root| root.is_dir()).ok_or(io::ErrorKind::NotFound)?;
    let mut groups: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (group, event) in names.iter().filter_map(|name| name.split_once(':')) {
        let event = event.split_once(':').map_or(event, |(event, _)| event);
        groups.entry(group).or_default().insert(event);
    }
    let mut out = b"\x17\x08\x44tracing0.6\0".to_vec();
    out.push(cfg!(target_endian = "big").into());
    out.push(size_of::<libc::c_long>() as u8);
    put_count(&mut out, rustix::param::page_size());
    for name in ["header_page", "header_event"] {
        out.extend_from_slice(name.as_bytes());
        out.push(0);
        put_file(&mut out, &root.join(name))?;
    }
    // Formats of ftrace's own events: none is sampled.
    put_count(&mut out, 0);
    put_count(&mut out, groups.len());
    for (group, events) in groups {
        out.extend_from_slice(group.as_bytes());
        out.push(0);
        put_count(&mut out, events.len());
        let dir = root.join(group);
        events.iter().try_for_each(|event| put_file(&mut out, &dir.join(event).join("format")))?;
    }
    // Kernel symbols, formats of printk, and, with a u64, names of tasks.
    put_count(&mut out, 0);
    put_count(&mut out, 0);
    out.extend_from_slice(&0u64.to_ne_bytes());
    Ok(out)
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&(count as u32).to_ne_bytes());
}

fn put_file(out: &mut Vec<u8>, path: &Path) -> io::Result<()> {
    let text = std::fs::read(path)?;
    out.extend_from_slice(&(text.len() as u64).to_ne_bytes());
    out.extend_from_slice(&text);
    Ok(())
}

/// Every tracepoint's name.
fn names(root: &Path) -> impl Iterator<Item = String> {
    directories(root).into_iter().flat_map(move |group| {
        let events = directories(&root.join(&group)).into_iter();
        events.map(move |event| format!("{group}:{event}"))
    })
}

fn directories(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// Whether `name` is what `glob` describes: `*` is any text, `?` any letter.
fn matches(glob: &str, name: &str) -> bool {
    let (glob, name) = (glob.as_bytes(), name.as_bytes());
    let (mut g, mut n) = (0, 0);
    // Where to go on if what follows the last star does not fit: it takes one letter more.
    let mut star = None;
    while let Some(&letter) = name.get(n) {
        match glob.get(g) {
            Some(b'*') => {
                star = Some((g, n));
                g += 1;
            }
            Some(&wanted) if wanted == b'?' || wanted == letter => {
                g += 1;
                n += 1;
            }
            _ => {
                let Some((at, taken)) = star else {
                    return false;
                };
                star = Some((at, taken + 1));
                g = at + 1;
                n = taken + 1;
            }
        }
    }
    glob.iter().skip(g).all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_once_for_each_tracepoint() {
        let dir = tempfile::tempdir().unwrap();
        let files = ["header_page", "header_event", "sched/switch/format", "sched/exec/format"];
        for file in files {
            let path = dir.path().join("events").join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, file.to_uppercase()).unwrap();
        }
        let tracefs = [dir.path().to_owned()];
        let names = ["sched:switch:u", "sched:exec", "sched:switch"];
        let bytes = tracing_data(&tracefs, &names).unwrap();
        assert!(bytes.starts_with(b"\x17\x08\x44tracing0.6\0"));
        let count = |text: &str| {
            bytes.windows(text.len()).filter(|window| *window == text.as_bytes()).count()
        };
        for file in files {
            assert_eq!(count(&file.to_uppercase()), 1, "{file}");
        }
        assert_eq!(count("sched\0\x02"), 1);
        assert!(tracing_data(&tracefs, &["sched:none"]).is_err());
        assert!(tracing_data(&[], &names).is_err());
    }

    #[test]
    fn globs() {
        let cases = [
            ("*", "", true),
            ("*", "abc", true),
            ("a*c", "abbc", true),
            ("a*c", "abcb", false),
            ("*sw*ch", "sched_switch", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("abc", "abc", true),
            ("abc", "abcd", false),
            ("", "a", false),
        ];
        for (glob, name, yes) in cases {
            assert_eq!(matches(glob, name), yes, "{glob} {name}");
        }
    }
}
