// SPDX-License-Identifier: GPL-2.0
//! A recording while it is made: moves records from the ring buffers to a file, and from one
//! file to the next.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use perf_bid_core::attr::Attr;
use perf_bid_core::data::Features;
use perf_bid_core::data::Info;
use perf_bid_core::data::Stamp;
use perf_bid_core::data::finished_round;
use perf_bid_core::data::lost_samples_record;
use perf_bid_core::session::Session;
use perf_bid_core::sys::local_timestamp;
use perf_bid_core::sys::now_in_hundredths;

use super::machine;
use super::open::Mode;
use super::open::Opened;
use super::output::with_suffix;
use super::say;
use super::scan::LookUp;
use super::scan::Scan;
use super::sink::Sink;
use super::synth;
use super::target::Target;
use crate::cli;
use crate::cli::Synth;

/// Open events, and the file that their records go to.
pub struct Recording<'a> {
    args: &'a cli::Record,
    pub session: Session,
    mode: Mode,
    synth: Synth,
    /// Attrs and IDs of the events.
    events: Vec<(Attr, Vec<u64>)>,
    names: Vec<String>,
    sink: Sink,
    scan: Scan,
    /// What one pass over the ring buffers brought.
    pass: Vec<u8>,
    /// COMM records that belong before it.
    comms: Vec<u8>,
    /// A record that cannot be read has been reported.
    warned: bool,
    /// The last write failed: what is not in the file by now is lost.
    broken: bool,
    /// Map records in the file that are not the kernel's.
    made_up: u64,
    /// What the kernel had lost when the file was begun.
    lost_before: u64,
    /// The finished files of `--switch-output`, oldest first.
    kept: VecDeque<PathBuf>,
    /// The time in the name of the latest of them, in hundredths of a second.
    named: i64,
    samples_before: u64,
}

impl<'a> Recording<'a> {
    /// Begins the first file. The events do not run yet.
    pub fn new(args: &'a cli::Record, opened: Opened, target: &Target) -> Result<Self> {
        let Opened { session, events, mode } = opened;
        let (names, attrs): (Vec<_>, Vec<_>) = events.into_iter().unzip();
        let ids = (0..attrs.len()).map(|index| session.ids(index));
        let ids = ids.collect::<Result<Vec<_>, _>>().context("cannot read the events' IDs")?;
        let first = attrs.first().context("no event")?.clone();
        let first_id = ids.first().and_then(|ids| ids.first()).copied().unwrap_or(0);
        let synth = args.synth.unwrap_or(if mode.plain { Synth::All } else { Synth::Needed });
        let look_up = LookUp {
            // The kernel tells the names of a command and its children, once the events run.
            names: synth != Synth::No && (!target.is_command || args.delay.is_some()),
            files: synth != Synth::No,
        };
        let events: Vec<_> = attrs.into_iter().zip(ids).collect();
        let sink = new_sink(args, &events, &names)?;
        Ok(Self {
            args,
            session,
            mode,
            synth,
            sink,
            scan: Scan::new(&first, first_id, look_up),
            events,
            names,
            pass: Vec::new(),
            comms: Vec::new(),
            warned: false,
            broken: false,
            made_up: 0,
            lost_before: 0,
            kept: VecDeque::new(),
            named: 0,
            samples_before: 0,
        })
    }

    /// Adds what `--synth=all` asks for about what runs now.
    pub fn make_up(&mut self, target: &Target) -> Result<()> {
        if self.synth != Synth::All {
            return Ok(());
        }
        let Some((attr, _)) = self.events.first().cloned() else {
            return Ok(());
        };
        self.made_up += synth::all(target, &attr, |records| {
            self.look_over(records);
            self.write(records)
        })?;
        Ok(())
    }

    /// Samples of all files so far.
    pub fn samples(&self) -> u64 {
        self.samples_before + self.scan.samples
    }

    /// Lost records of this file so far, as far as the buffers say.
    pub fn lost(&self) -> u64 {
        self.scan.lost_records
    }

    /// Lost samples of this file so far, as far as the events count them.
    fn lost_samples(&self) -> Result<u64> {
        let all = self.session.lost().context("cannot ask what was lost")?.unwrap_or(0);
        Ok(all.saturating_sub(self.lost_before))
    }

    /// Bytes of records in this file.
    pub fn size(&self) -> u64 {
        self.sink.len()
    }

    /// Moves what is in the ring buffers to the file; returns how many bytes that was.
    pub fn drain(&mut self) -> Result<usize> {
        self.pass.clear();
        let pass = &mut self.pass;
        let bytes = self.session.drain(|_, run, wrapped| {
            pass.extend_from_slice(run);
            pass.extend_from_slice(wrapped);
            Ok::<_, Infallible>(())
        });
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(never) => match never {},
        };
        if bytes == 0 {
            return Ok(0);
        }
        let pass = std::mem::take(&mut self.pass);
        self.look_over(&pass);
        let comms = std::mem::take(&mut self.comms);
        let records = [comms.as_slice(), &pass, &finished_round()];
        records.into_iter().try_for_each(|records| self.write(records))?;
        (self.pass, self.comms) = (pass, comms);
        Ok(bytes)
    }

    /// Completes this file and goes on in a new one.
    pub fn switch(&mut self, target: &Target) -> Result<()> {
        self.end_file()?;
        self.sink = new_sink(self.args, &self.events, &self.names)?;
        self.samples_before += self.scan.samples;
        // The names that the kernel told are in the file before.
        self.scan.next_file(self.synth != Synth::No);
        self.made_up = 0;
        self.drop_oldest()?;
        self.make_up(target)
    }

    /// Completes the file: under its own name, or one with the time.
    pub fn end_file(&mut self) -> Result<()> {
        let lost_samples = self.lost_samples()?;
        if self.sink.is_pipe() && lost_samples > self.scan.lost_records {
            self.tell_lost(lost_samples - self.scan.lost_records)?;
        }
        let (path, features) = (self.final_path(), self.features(lost_samples));
        match self.sink.finish(&features, &path) {
            Ok(size) => self.say_what_is_done(lost_samples, &path, size),
            Err(error) => {
                self.broken = true;
                return Err(error).with_context(|| cannot_write(&self.args.output));
            }
        }
        self.lost_before = self.lost_before.saturating_add(lost_samples);
        if self.args.switch_output.is_some() {
            self.kept.push_back(path);
        }
        Ok(())
    }

    /// After `error`: keeps what did get into the file, if it was the file that failed, and
    /// says so.
    pub fn give_up(&mut self, error: anyhow::Error) -> anyhow::Error {
        let path = self.final_path();
        // If that cannot be asked for any more, the file says nothing of it.
        let features = self.features(self.lost_samples().unwrap_or(0));
        let broken = self.broken.then_some(&mut self.sink);
        match broken.and_then(|sink| sink.salvage(&features, &path)) {
            Some(path) => anyhow!("{error:#}; what was recorded before is in {}", path.display()),
            None => error,
        }
    }

    fn look_over(&mut self, records: &[u8]) {
        self.comms.clear();
        if let Err(error) = self.scan.take(records, &mut self.comms)
            && !self.warned
        {
            // The records are kept all the same; another version may read them.
            say(format_args!(
                "perf-bid record: the kernel wrote a record that cannot be read: {error}"
            ));
            self.warned = true;
        }
    }

    fn write(&mut self, records: &[u8]) -> Result<()> {
        self.sink.write(records).map_err(|error| {
            self.broken = true;
            anyhow::Error::from(error).context(cannot_write(&self.args.output))
        })
    }

    /// A pipe has no place for the number but a record.
    fn tell_lost(&mut self, lost: u64) -> Result<()> {
        let Some((attr, ids)) = self.events.first() else {
            return Ok(());
        };
        let time = self.scan.times.map_or(0, |(_, last)| last);
        let id = ids.first().copied().unwrap_or(0);
        let record = lost_samples_record(Stamp { attr, time, id }, lost);
        self.write(&record)
    }

    fn features(&self, lost_samples: u64) -> Features {
        Features {
            build_ids: self.scan.build_ids(),
            sample_time: self.scan.times,
            info: Info { boot_id: machine::boot_id(), lost_samples },
            ..known_features(&self.events, &self.names)
        }
    }

    /// What the file in the making is to be called. Files of `--switch-output` have the time,
    /// or the next that is free: two may end within a hundredth of a second, and the clock may
    /// be set back.
    fn final_path(&mut self) -> PathBuf {
        if self.args.switch_output.is_none() {
            return self.args.output.clone();
        }
        self.named = self.named.saturating_add(1).max(now_in_hundredths());
        loop {
            let suffix = format!(".{}", local_timestamp(self.named));
            let path = with_suffix(&self.args.output, &suffix);
            if !path.exists() {
                return path;
            }
            self.named = self.named.saturating_add(1);
        }
    }

    /// Removes what `--switch-max-files` does not allow any more, the file in the making
    /// counted.
    fn drop_oldest(&mut self) -> Result<()> {
        let Some(most) = self.args.switch_max_files else {
            return Ok(());
        };
        while self.kept.len() >= most as usize {
            if let Some(oldest) = self.kept.pop_front() {
                match std::fs::remove_file(&oldest) {
                    // Who collects the files was faster.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    removed => {
                        removed.with_context(|| format!("cannot remove {}", oldest.display()))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn say_what_is_done(&self, lost_samples: u64, path: &Path, size: u64) {
        if self.args.quiet {
            return;
        }
        let path = match self.sink.is_pipe() && path.as_os_str() == "-" {
            true => "standard output".into(),
            false => path.to_string_lossy(),
        };
        let lost = lost_samples.max(self.scan.lost_records);
        if lost > 0 {
            say(format_args!(
                "perf-bid record: {lost} records found no room in the ring buffers: a larger -m, \
                 a lower -F or fewer events help"
            ));
        }
        say(format_args!(
            "[ perf-bid record: {} samples, {lost} lost, {}, {} synthesized map records, written to \
             {path} ({:.1} MB) ]",
            self.scan.samples,
            self.mode,
            self.made_up,
            size as f64 / 1e6,
        ));
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// What is known before the first sample.
fn known_features(events: &[(Attr, Vec<u64>)], names: &[String]) -> Features {
    let ids = events.iter().map(|(_, ids)| ids.clone());
    Features { events: names.iter().cloned().zip(ids).collect(), ..machine::features() }
}

fn new_sink(args: &cli::Record, events: &[(Attr, Vec<u64>)], names: &[String]) -> Result<Sink> {
    Sink::create(&args.output, events, &known_features(events, names), args.compression)
}
