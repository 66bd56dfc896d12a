// SPDX-License-Identifier: GPL-2.0

//! Files in `/sys/kernel/debug/perf_build_id_offset/`, of one `name value` a line:
//!
//! - `state`: what there is because of events. When no event has one of the sample types, every
//!   value is 0.
//! - `counters`: what became of addresses and files while it was counted, which begins when 1 is
//!   written to the file and ends with 0.

use kernel::debugfs::Dir;
use kernel::debugfs::File;
use kernel::fmt;
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::Mutex;
use kernel::uaccess::UserSliceReader;
use kernel::InPlaceModule;
use kernel::ThisModule;

use crate::account;
use crate::hooks;
use crate::resolver;

/// The files. They stay for as long as the kernel runs.
#[pin_data]
pub(crate) struct State {
    #[pin]
    _state: File<()>,
    #[pin]
    _counters: File<Mutex<bool>>,
    _dir: Dir,
}

impl InPlaceModule for State {
    fn init(_module: &'static ThisModule) -> impl PinInit<Self, Error> {
        let dir = Dir::new(c"perf_build_id_offset");

        try_pin_init!(Self {
            _state <- dir.read_callback_file(c"state", (), &|(): &(), to| write_state(to)),
            _counters <- dir.read_write_callback_file(
                c"counters",
                new_mutex!(false),
                &|_: &Mutex<bool>, to| write_counters(to),
                &switch_counters,
            ),
            _dir: dir,
        })
    }
}

fn write_state(to: &mut fmt::Formatter<'_>) -> fmt::Result {
    let existing = account::existing();

    for (name, value) in [
        ("build_id_offset_events", existing.ip_events),
        (
            "callchain_build_id_offset_events",
            existing.callchain_events,
        ),
        ("deferred_output_events", existing.deferred_events),
        ("buffers", usize::from(existing.buffers)),
        ("cache_chunks", resolver::cache_len()),
        ("hooks", hooks::users()),
    ] {
        writeln!(to, "{name} {value}")?;
    }
    Ok(())
}

fn write_counters(to: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (name, value) in resolver::counters() {
        writeln!(to, "{name} {value}")?;
    }
    Ok(())
}

/// Counts, or no longer counts, by what is written.
fn switch_counters(counting: &Mutex<bool>, from: &mut UserSliceReader) -> Result {
    let wanted = match from.read::<u8>()? {
        b'0' => false,
        b'1' => true,
        _ => return Err(EINVAL),
    };
    let mut counting = counting.lock();

    if *counting != wanted {
        hooks::set_counting(wanted);
    }
    *counting = wanted;
    Ok(())
}
