// SPDX-License-Identifier: GPL-2.0

//! `/sys/kernel/debug/perf_build_id_offset/state`: what there is because of events.
//!
//! One `name value` a line. When no event has one of the sample types, every value is 0.

use kernel::debugfs::Dir;
use kernel::debugfs::File;
use kernel::fmt;
use kernel::prelude::*;
use kernel::InPlaceModule;
use kernel::ThisModule;

use crate::account;
use crate::hooks;

/// The file. It stays for as long as the kernel runs.
#[pin_data]
pub(crate) struct State {
    #[pin]
    _file: File<()>,
    _dir: Dir,
}

impl InPlaceModule for State {
    fn init(_module: &'static ThisModule) -> impl PinInit<Self, Error> {
        let dir = Dir::new(c"perf_build_id_offset");

        try_pin_init!(Self {
            _file <- dir.read_callback_file(c"state", (), &|(): &(), to| write(to)),
            _dir: dir,
        })
    }
}

fn write(to: &mut fmt::Formatter<'_>) -> fmt::Result {
    let existing = account::existing();

    for (name, value) in [
        ("build_id_offset_events", existing.ip_events),
        (
            "callchain_build_id_offset_events",
            existing.callchain_events,
        ),
        ("deferred_output_events", existing.deferred_events),
        ("buffers", usize::from(existing.buffers)),
        ("hooks", hooks::users()),
    ] {
        writeln!(to, "{name} {value}")?;
    }
    Ok(())
}
