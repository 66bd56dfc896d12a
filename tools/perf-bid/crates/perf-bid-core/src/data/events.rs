// SPDX-License-Identifier: GPL-2.0
//! The events of a file, and which of them wrote a record.

use rustc_hash::FxHashMap;

use crate::attr::Attr;
use crate::cursor::Malformed;
use crate::record::Format;
use crate::record::RawRecord;

/// More events than any recording has: `perf record` opens a file for each and each CPU.
const EVENTS_MAX: usize = 1 << 16;

/// One event of a file.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct EventDesc {
    pub attr: Attr,
    pub ids: Vec<u64>,
    /// From the event description feature or an EVENT_UPDATE record, else empty.
    pub name: String,
    pub format: Format,
}

#[derive(Debug, Default)]
pub(super) struct Events {
    all: Vec<EventDesc>,
    by_id: FxHashMap<u64, u32>,
}

impl Events {
    pub(super) fn all(&self) -> &[EventDesc] {
        &self.all
    }

    pub(super) fn all_mut(&mut self) -> &mut [EventDesc] {
        &mut self.all
    }

    /// Adds the event that is described at `offset`.
    pub(super) fn push(&mut self, attr: Attr, ids: Vec<u64>, offset: u64) -> Result<(), Malformed> {
        let format = Format::from(&attr);
        if self.all.len() >= EVENTS_MAX {
            let what = format!("the file describes more than {EVENTS_MAX} events");
            return Err(Malformed::new(offset, what));
        }
        if let Some(first) = self.all.first() {
            if !first.format.has_event_id() || !format.has_event_id() {
                let what = "several events, but their samples carry no ID to tell them apart";
                return Err(Malformed::new(offset, what));
            }
            if !first.format.same_id_position(&format) {
                let what = "several events, but their IDs are at different places in the records";
                return Err(Malformed::new(offset, what));
            }
        }
        let index = self.all.len() as u32;
        self.by_id.extend(ids.iter().map(|&id| (id, index)));
        self.all.push(EventDesc { attr, ids, name: String::new(), format });
        Ok(())
    }

    /// Names the event with this ID.
    pub(super) fn rename(&mut self, id: u64, name: String) {
        let index = self.by_id.get(&id).copied().unwrap_or(u32::MAX);
        if let Some(event) = self.all.get_mut(index as usize) {
            event.name = name;
        }
    }

    /// The event that wrote `raw`. Records of no event in particular (ID 0, FINISHED_ROUND)
    /// have the first one's form.
    pub(super) fn of(&self, raw: &RawRecord<'_>) -> Option<(usize, &EventDesc)> {
        self.find(|format| format.event_id(raw))
    }

    /// The same for a record of the other byte order.
    pub(super) fn of_foreign(&self, type_: u32, body: &[u8]) -> Option<&EventDesc> {
        self.find(|format| format.foreign_event_id(type_, body)).map(|(_, event)| event)
    }

    fn find(&self, id: impl Fn(&Format) -> Option<u64>) -> Option<(usize, &EventDesc)> {
        let first = self.all.first()?;
        if self.all.len() == 1 {
            return Some((0, first));
        }
        let index = id(&first.format).and_then(|id| self.by_id.get(&id).copied()).unwrap_or(0);
        let index = index as usize;
        self.all.get(index).map(|event| (index, event))
    }
}
