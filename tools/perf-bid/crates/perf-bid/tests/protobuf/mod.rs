// SPDX-License-Identifier: GPL-2.0
//! As much of protocol buffers' wire format as it takes to read what `export` writes.

/// The fields of a message, in the order of the bytes.
pub struct Message(Vec<(u64, Field)>);

enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

impl Message {
    pub fn parse(mut bytes: &[u8]) -> Self {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let field = match key & 7 {
                0 => Field::Number(varint(&mut bytes)),
                2 => {
                    let len = varint(&mut bytes) as usize;
                    let (field, rest) = bytes.split_at(len);
                    bytes = rest;
                    Field::Bytes(field.to_vec())
                }
                other => panic!("wire type {other}"),
            };
            fields.push((key >> 3, field));
        }
        Self(fields)
    }

    /// A number; what is not there is 0.
    pub fn number(&self, tag: u64) -> u64 {
        let found = self.0.iter().find(|(its, _)| *its == tag);
        match found {
            Some((_, Field::Number(value))) => *value,
            Some((_, Field::Bytes(_))) => panic!("field {tag} is no number"),
            None => 0,
        }
    }

    fn bytes(&self, tag: u64) -> impl Iterator<Item = &[u8]> {
        let all = self.0.iter().filter(move |(its, _)| *its == tag);
        all.map(move |(_, field)| match field {
            Field::Bytes(bytes) => bytes.as_slice(),
            Field::Number(_) => panic!("field {tag} is a number"),
        })
    }

    pub fn texts(&self, tag: u64) -> Vec<String> {
        self.bytes(tag).map(|bytes| String::from_utf8(bytes.to_vec()).unwrap()).collect()
    }

    pub fn messages(&self, tag: u64) -> Vec<Message> {
        self.bytes(tag).map(Message::parse).collect()
    }

    /// Repeated numbers, which are packed into one field.
    pub fn packed(&self, tag: u64) -> Vec<u64> {
        let mut numbers = Vec::new();
        for mut bytes in self.bytes(tag) {
            while !bytes.is_empty() {
                numbers.push(varint(&mut bytes));
            }
        }
        numbers
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (first, rest) = bytes.split_first().expect("the message is cut off");
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            break;
        }
    }
    value
}
