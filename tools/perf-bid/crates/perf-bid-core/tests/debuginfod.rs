// SPDX-License-Identifier: GPL-2.0
//! debuginfod servers made for the test, good and bad, on the loopback device.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::net::TcpListener;
use std::net::TcpStream;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;
use std::time::Instant;

use perf_bid_core::abi::BuildId;
use perf_bid_core::debuginfod::Debuginfod;
use perf_bid_core::place::Dso;
use perf_bid_core::place::DsoKind;
use perf_bid_core::place::Dsos;
use perf_bid_core::place::Frame;
use perf_bid_core::place::Place;
use perf_bid_core::store::Part;
use perf_bid_core::store::Store;
use perf_bid_core::store::read_elf;
use perf_bid_core::symbols::Options;
use perf_bid_core::symbols::Symbolizer;

/// How a server behaves.
#[derive(Clone)]
enum Manner {
    /// It has these bytes, whatever is asked for.
    Answers(Vec<u8>),
    /// It has nothing.
    NotFound,
    /// It is broken.
    Broken,
    /// It accepts, and says nothing.
    Hangs,
    /// It sends a byte now and then, for ever.
    Drips,
    /// It does not speak HTTP.
    Garbage,
}

/// A server, and the paths it was asked for.
struct Server {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (manner, log) = (manner.clone(), Arc::clone(&log));
                // A client that gave up is no failure of the server.
                std::thread::spawn(move || serve(stream, manner, &log).ok());
            }
        });
        Self { url, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, manner: Manner, log: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut line = String::new();
    let mut lines = BufReader::new(stream.try_clone()?);
    lines.read_line(&mut line)?;
    log.lock().unwrap().push(line.split(' ').nth(1).unwrap_or_default().to_owned());
    while lines.read_line(&mut line)? > 2 {}
    let head = "Connection: close\r\nContent-Length:";
    match manner {
        Manner::Answers(body) => {
            write!(stream, "HTTP/1.1 200 OK\r\n{head} {}\r\n\r\n", body.len())?;
            stream.write_all(&body)
        }
        Manner::NotFound => write!(stream, "HTTP/1.1 404 Not Found\r\n{head} 0\r\n\r\n"),
        Manner::Broken => write!(stream, "HTTP/1.1 500 Oops\r\n{head} 0\r\n\r\n"),
        Manner::Garbage => stream.write_all(&[0xff; 4096]),
        Manner::Hangs => {
            std::thread::sleep(Duration::from_secs(60));
            Ok(())
        }
        Manner::Drips => {
            write!(stream, "HTTP/1.1 200 OK\r\n{head} 1000000\r\n\r\n")?;
            loop {
                stream.write_all(b"x")?;
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

fn client(servers: &[&Server], cache: &Path, limit: Duration) -> Debuginfod {
    let urls = servers.iter().map(|server| server.url.clone()).collect();
    Debuginfod::new(urls, cache.to_owned(), limit).patience(LIMIT)
}

/// The file, and what was complained of.
fn fetch(client: &mut Debuginfod, id: BuildId, part: Part) -> (Option<PathBuf>, Vec<String>) {
    let mut complaints = Vec::new();
    (client.fetch(id, part, &mut complaints), complaints)
}

const LIMIT: Duration = Duration::from_secs(30);

/// An ELF file, and its ID.
fn id_and_bytes() -> (BuildId, Vec<u8>) {
    let path = "/bin/sleep";
    (read_elf(path.as_ref()).unwrap().build_id.unwrap(), std::fs::read(path).unwrap())
}

fn other_id() -> BuildId {
    BuildId::new(&[0x77; 20]).unwrap()
}

#[test]
fn a_file_is_fetched_once_and_kept() {
    let (id, bytes) = id_and_bytes();
    let dir = tempfile::tempdir().unwrap();
    let (first, second) =
        (Server::start(Manner::NotFound), Server::start(Manner::Answers(bytes.clone())));
    let mut client = client(&[&first, &second], dir.path(), LIMIT);
    let path = fetch(&mut client, id, Part::Executable).0.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    assert_eq!(path, dir.path().join(id.to_string()).join("executable"));
    assert_eq!(fetch(&mut client, id, Part::Executable), (Some(path), Vec::new()));
    assert!(fetch(&mut client, id, Part::Debug).0.is_some());
    let asked = ["executable", "debuginfo"].map(|what| format!("/buildid/{id}/{what}"));
    assert_eq!(first.asked(), asked);
    assert_eq!(second.asked(), asked);
}

#[test]
fn what_no_server_has_is_asked_for_once() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(Manner::NotFound);
    let mut client = client(&[&server], dir.path(), LIMIT);
    for _ in 0..3 {
        assert_eq!(fetch(&mut client, other_id(), Part::Debug), (None, Vec::new()));
    }
    assert_eq!(server.asked().len(), 1);
}

/// A bad server is complained of once and not asked again; the next one is.
#[test]
fn bad_servers_are_given_up_on() {
    let (id, bytes) = id_and_bytes();
    // A good one must have answered by then, however busy the machine is.
    let (long, short) = (LIMIT, Duration::from_secs(3));
    for (manner, patience) in [
        (Manner::Broken, long),
        (Manner::Hangs, short),
        (Manner::Garbage, long),
        (Manner::Answers(b"no".to_vec()), long),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (bad, good) = (Server::start(manner), Server::start(Manner::Answers(bytes.clone())));
        let mut both = client(&[&bad, &good], dir.path(), LIMIT).patience(patience);
        let (path, complaints) = fetch(&mut both, id, Part::Executable);
        assert!(path.is_some() && complaints.len() == 1, "{path:?} {complaints:?}");
        let mut alone = client(&[&bad], &dir.path().join("other"), LIMIT).patience(patience);
        let begin = Instant::now();
        let (path, complaints) = fetch(&mut alone, id, Part::Executable);
        assert!(path.is_none() && complaints.len() == 1, "{path:?} {complaints:?}");
        assert!(complaints[0].contains("not asked any more"), "{complaints:?}");
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
        let again = fetch(&mut alone, other_id(), Part::Executable);
        assert_eq!(again, (None, Vec::new()), "said once");
        assert_eq!(bad.asked().len(), 2, "{:?}", bad.asked());
    }
}

#[test]
fn all_of_it_takes_no_longer_than_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(Manner::Drips);
    let mut client = client(&[&server], dir.path(), Duration::from_millis(800));
    let begin = Instant::now();
    let (path, complaints) = fetch(&mut client, other_id(), Part::Executable);
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    assert!(path.is_none(), "{path:?}");
    assert!(complaints.last().unwrap().contains("time"), "{complaints:?}");
    assert_eq!(fetch(&mut client, id_and_bytes().0, Part::Executable), (None, Vec::new()));
    assert_eq!(server.asked().len(), 1);
    let left: Vec<_> = walk(dir.path());
    assert!(left.is_empty(), "half a file was kept: {left:?}");
}

/// Files below `dir`.
fn walk(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let below = |path: PathBuf| if path.is_dir() { walk(&path) } else { vec![path] };
    entries.flat_map(below).collect()
}

#[test]
fn the_symbolizer_asks_and_complains_once() {
    let (id, bytes) = id_and_bytes();
    let dir = tempfile::tempdir().unwrap();
    let (good, bad) = (Server::start(Manner::Answers(bytes)), Server::start(Manner::Broken));
    let client = client(&[&bad, &good], dir.path(), LIMIT);
    let store = Store::with_roots(Vec::new()).fetcher(client.into_fetcher());
    let mut dsos = Dsos::default();
    let [here, gone] = [id, other_id()].map(|id| {
        dsos.intern(Dso { kind: DsoKind::File, path: "/no/where".into(), build_id: Some(id) })
    });
    let mut symbolizer = Symbolizer::new(store, Options::default());
    let text = read_elf("/bin/sleep".as_ref()).unwrap();
    let offset = text.segments.iter().find(|segment| segment.executable).unwrap().offset + 0x800;
    for dso in [here, gone] {
        symbolizer.resolve(&dsos, Frame { place: Place::File { dso, offset }, caller: false });
    }
    let origins: Vec<_> = symbolizer.problems().cloned().collect();
    assert!(origins[0].file.as_ref().unwrap().starts_with(dir.path()), "{origins:?}");
    assert_eq!(origins[1].file, None);
    assert!(origins[1].problem.as_ref().unwrap().contains("no file"), "{origins:?}");
    let complaints = symbolizer.complaints();
    assert!(complaints[0].contains(&bad.url), "{complaints:?}");
    assert_eq!(complaints.iter().filter(|said| said.contains(&bad.url)).count(), 1);
}
