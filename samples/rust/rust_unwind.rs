// SPDX-License-Identifier: GPL-2.0

//! Rust deferred unwinding sample.
//!
//! Whoever opens `/dev/rust-unwind` has the user stack that the open came from printed to the
//! kernel's log:
//!
//! ```sh
//! true < /dev/rust-unwind
//! dmesg
//! ```

use kernel::fs::File;
use kernel::miscdevice::MiscDevice;
use kernel::miscdevice::MiscDeviceOptions;
use kernel::miscdevice::MiscDeviceRegistration;
use kernel::prelude::*;
use kernel::unwind::Callback;
use kernel::unwind::Cookie;
use kernel::unwind::StackTrace;
use kernel::unwind::Work;

module! {
    type: RustUnwind,
    name: "rust_unwind",
    authors: ["Rust for Linux Contributors"],
    description: "Rust deferred unwinding sample",
    license: "GPL",
}

#[pin_data]
struct RustUnwind {
    #[pin]
    _device: MiscDeviceRegistration<OpenFile>,
}

impl kernel::InPlaceModule for RustUnwind {
    fn init(_module: &'static ThisModule) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            _device <- MiscDeviceRegistration::register(MiscDeviceOptions {
                name: c"rust-unwind",
            }),
        })
    }
}

/// A user of the unwinder for as long as the file is open.
#[pin_data]
struct OpenFile {
    #[pin]
    work: Work<Print>,
}

#[vtable]
impl MiscDevice for OpenFile {
    type Ptr = Pin<KBox<Self>>;

    fn open(_file: &File, _device: &MiscDeviceRegistration<Self>) -> Result<Self::Ptr> {
        let file =
            KBox::try_pin_init(try_pin_init!(Self { work <- Work::new(Print) }), GFP_KERNEL)?;

        let cookie = file.work.request()?;
        pr_info!("the stack will come with cookie {:#x}\n", cookie.get());
        Ok(file)
    }
}

/// Prints the stacks that were requested.
struct Print;

impl Callback for Print {
    fn unwound(&self, trace: &StackTrace<'_>, cookie: Cookie) {
        pr_info!(
            "cookie {:#x}: {} frames\n",
            cookie.get(),
            trace.addresses().len()
        );
        for address in trace.addresses() {
            pr_info!("  {address:#x}\n");
        }
    }
}
