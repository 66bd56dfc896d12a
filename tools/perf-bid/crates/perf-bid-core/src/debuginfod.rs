// SPDX-License-Identifier: GPL-2.0
//! Files from debuginfod servers, by build ID.
//!
//! Nothing is asked of a server unless the user set `DEBUGINFOD_URLS`, each file is asked for
//! once, and all of it together takes no longer than the limit. A server that does not answer,
//! or not as a server should, is given up on for the rest of the run. What a server sends is
//! kept only if its build ID note says what was asked for, in the cache that other debuginfod
//! clients use.

use std::fs::File;
use std::io;
use std::io::Read;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;
use std::time::Instant;

use debuginfod::Client;
use debuginfod::HttpClient;
use debuginfod::HttpClientError;
use debuginfod::Readable;
use debuginfod::reqwest::blocking::Client as Http;
use rustc_hash::FxHashSet;

use crate::abi::BuildId;
use crate::store::Fetcher;
use crate::store::Part;
use crate::store::verified;

/// A server has to answer, and to go on sending, within this time.
const PATIENCE: Duration = Duration::from_secs(10);
/// What is larger is not kept, in bytes.
const LARGEST: u64 = 8 << 30;

/// The servers of the user.
#[derive(Debug)]
pub struct Debuginfod {
    /// Those that have not been given up on.
    servers: Vec<String>,
    cache: PathBuf,
    patience: Duration,
    /// What is left of the time for all files.
    left: Duration,
    asked: FxHashSet<(BuildId, Part)>,
}

impl Debuginfod {
    /// The servers in `DEBUGINFOD_URLS`, if there are any, which may take `limit` altogether.
    pub fn from_env(limit: Duration) -> Option<Self> {
        let urls = std::env::var("DEBUGINFOD_URLS").ok()?;
        let servers: Vec<_> = urls.split_ascii_whitespace().map(str::to_owned).collect();
        let set = |name| std::env::var_os(name).map(PathBuf::from);
        let cache = set("DEBUGINFOD_CACHE_PATH")
            .or_else(|| Some(set("XDG_CACHE_HOME")?.join("debuginfod_client")))
            .or_else(|| Some(set("HOME")?.join(".cache/debuginfod_client")))?;
        (!servers.is_empty()).then(|| Self::new(servers, cache, limit))
    }

    /// The servers at base URLs `servers`; what they send is kept below `cache`.
    pub fn new(servers: Vec<String>, cache: PathBuf, limit: Duration) -> Self {
        Self { servers, cache, patience: PATIENCE, left: limit, asked: FxHashSet::default() }
    }

    /// A server has to answer within `patience`.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// For a [`Store`](crate::store::Store).
    pub fn into_fetcher(mut self) -> Fetcher {
        Fetcher(Box::new(move |id, part, complaints| self.fetch(id, part, complaints)))
    }

    /// Gets a file: its path, or `None` if no server has it, or none is left to be asked. What
    /// went wrong with a server is added to `complaints`, once.
    pub fn fetch(
        &mut self,
        id: BuildId,
        part: Part,
        complaints: &mut Vec<String>,
    ) -> Option<PathBuf> {
        let path = self.cache.join(id.to_string()).join(endpoint(part));
        if verified(&path, id).is_some() {
            return Some(path);
        }
        if !self.asked.insert((id, part)) {
            return None;
        }
        for server in self.servers.clone() {
            if self.left.is_zero() {
                break;
            }
            let begin = Instant::now();
            let answer = self.ask(&server, id, part, &path);
            self.left = self.left.saturating_sub(begin.elapsed());
            match answer {
                Ok(true) => return Some(path),
                Ok(false) => {}
                Err(why) => {
                    self.servers.retain(|other| *other != server);
                    complaints.push(format!("{server} is not asked any more: {why}"));
                }
            }
            if self.left.is_zero() {
                self.servers.clear();
                complaints.push("the time for debuginfod servers is up".to_owned());
            }
        }
        None
    }

    /// Asks one server; whether it had the file.
    fn ask(&self, server: &str, id: BuildId, part: Part, path: &Path) -> Result<bool, String> {
        let say = |error: io::Error| error.to_string();
        let until = Instant::now() + self.left;
        let timeout = self.patience.min(self.left);
        let http = Http::builder().timeout(timeout).build().map_err(|error| error.to_string())?;
        let client = Client::builder().http_client(Files { http, part });
        let client = client.build([server]).map_err(|error| format!("{error:#}"))?;
        let Some(client) = client else { return Ok(false) };
        let wanted = debuginfod::BuildId::raw(id.as_bytes());
        let answer = client.fetch_debug_info(&wanted).map_err(|error| format!("{error:#}"))?;
        let Some(mut answer) = answer else { return Ok(false) };
        let dir = path.parent().unwrap_or(&self.cache);
        std::fs::create_dir_all(dir).map_err(say)?;
        let mut file = tempfile::NamedTempFile::new_in(dir).map_err(say)?;
        copy(&mut answer.data, file.as_file_mut(), until).map_err(say)?;
        if verified(file.path(), id).is_none() {
            return Err(format!("it sent something else for {}", id.short()));
        }
        file.persist(path).map_err(|error| say(error.error))?;
        Ok(true)
    }
}

/// The last part of the URL, and of the path in the cache.
fn endpoint(part: Part) -> &'static str {
    match part {
        Part::Executable => "executable",
        Part::Debug => "debuginfo",
    }
}

/// Copies until the end, the largest size or the deadline.
fn copy(from: &mut impl Read, to: &mut File, until: Instant) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    let mut total = 0;
    loop {
        let len = from.read(&mut buffer)?;
        if len == 0 {
            return Ok(());
        }
        to.write_all(buffer.get(..len).unwrap_or_default())?;
        total += len as u64;
        if total > LARGEST {
            return Err(io::Error::other("it sent too much"));
        }
        if Instant::now() >= until {
            return Err(io::Error::other("it took too long"));
        }
    }
}

/// The crate asks for debug information only; servers have executables beside it.
#[derive(Debug)]
struct Files {
    http: Http,
    part: Part,
}

impl HttpClient for Files {
    fn get(&self, url: &str) -> Result<Box<dyn Readable>, HttpClientError> {
        let base = url.strip_suffix(endpoint(Part::Debug)).unwrap_or(url);
        HttpClient::get(&self.http, &format!("{base}{}", endpoint(self.part)))
    }
}
