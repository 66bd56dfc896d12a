// SPDX-License-Identifier: GPL-2.0
//! The output file: written beside its final name and renamed when it is complete, so that a
//! failure leaves an older recording as it was.

use std::ffi::OsString;
use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::io::Seek;
use std::io::SeekFrom;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;

/// Names for the temporary file to try.
const ATTEMPTS: u32 = 100;

/// A file that appears under its name only with [`Output::keep`].
#[derive(Debug)]
pub struct Output {
    file: File,
    /// `None` if the path is a device or the like, which is written in place.
    temporary: Option<PathBuf>,
}

impl Output {
    /// Starts a file that shall be at `path`.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        // A profile can tell secrets: addresses, command lines.
        options.write(true).mode(0o600);
        let special = path.metadata().is_ok_and(|meta| !meta.is_file());
        if special {
            let file = options.open(path)?;
            return Ok(Self { file, temporary: None });
        }
        // Never a file or a symbolic link that is there already: others may be able to write
        // to the directory.
        options.create_new(true);
        let mut attempt = 0;
        loop {
            let suffix = format!(".tmp-{}-{attempt}", std::process::id());
            let temporary = with_suffix(path, &suffix);
            match options.open(&temporary) {
                Ok(file) => {
                    return Ok(Self { file, temporary: Some(temporary) });
                }
                Err(error)
                    if error.kind() == io::ErrorKind::AlreadyExists && attempt < ATTEMPTS =>
                {
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether there is a file that can be kept, and not a device.
    pub fn is_beside(&self) -> bool {
        self.temporary.is_some()
    }

    /// Moves an older file to `path.old` and this one to `path`, which is in the same
    /// directory.
    pub fn keep(&mut self, path: &Path) -> io::Result<()> {
        self.file.flush()?;
        let Some(temporary) = &self.temporary else {
            return Ok(());
        };
        if path.exists() {
            let old = with_suffix(path, ".old");
            std::fs::rename(path, &old).map_err(|error| {
                let what = format!("the older file cannot be moved to {}: {error}", old.display());
                io::Error::new(error.kind(), what)
            })?;
        }
        std::fs::rename(temporary, path)?;
        self.temporary = None;
        Ok(())
    }

    /// Leaves the file under the name that it has so far, unless it is gone.
    pub fn leave(&mut self) -> Option<PathBuf> {
        self.temporary.take().filter(|temporary| temporary.exists())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for Output {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // Nothing more can be done about a file that cannot be removed.
            let _ = std::fs::remove_file(temporary);
        }
    }
}

/// `path` with `suffix` at its end.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_way_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (path, victim) = (dir.path().join("perf.data"), dir.path().join("victim"));
        std::fs::write(&victim, "precious").unwrap();
        let link = with_suffix(&path, &format!(".tmp-{}-0", std::process::id()));
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        let mut output = Output::create(&path).unwrap();
        output.write_all(b"new").unwrap();
        output.keep(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
        assert!(link.is_symlink());
    }
}
