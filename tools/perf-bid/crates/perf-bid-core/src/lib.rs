// SPDX-License-Identifier: GPL-2.0
//! perf events whose samples name code by **build ID and file offset**.
//!
//! A kernel with `CONFIG_PERF_BUILD_ID_OFFSET` resolves the addresses of a sample itself, so
//! that a recording needs no memory maps to be understood. This crate is the user-space side:
//!
//! - [`abi`], [`attr`], [`record`]: the kernel's structures and records;
//! - [`sys`], [`ring`], [`session`], [`event`], [`workload`]: opening events, reading their
//!   ring buffers, and starting the command they watch;
//! - [`data`], [`encode`], [`stream`]: perf.data files, read and written, and put in order;
//! - [`elf`], [`store`]: from a build ID or a path to a file;
//! - [`symbols`]: from a frame to functions, by way of [`symtab`], [`plt`], [`functions`],
//!   [`kernel`], [`jit`] and [`demangle`].
//!
//! It trusts nothing it reads: lengths and offsets are checked, and errors carry the byte
//! offset at which the input stops making sense.

pub mod abi;
pub mod attr;
pub mod cursor;
pub mod data;
#[cfg(feature = "debuginfod")]
pub mod debuginfod;
pub mod demangle;
mod dwarf;
pub mod elf;
pub mod encode;
pub mod event;
pub mod functions;
pub mod jit;
pub mod kernel;
pub mod machine;
pub mod place;
pub mod plt;
pub mod profile;
pub mod record;
pub mod ring;
pub mod session;
pub mod store;
pub mod stream;
pub mod symbols;
pub mod symtab;
pub mod sys;
pub mod workload;
