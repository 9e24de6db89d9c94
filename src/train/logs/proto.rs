//! The parts of protocol buffers and of TensorFlow's records that event files need.
//!
//! A message is a sequence of fields, each after its number and wire type. A record is a length, the checksum of the length,
//! the bytes, and their checksum.

use std::io::{self, Write};

/// A message under construction.
#[derive(Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    pub fn new() -> Message {
        Message::default()
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn key(&mut self, field: u32, kind: u32) {
        self.varint(u64::from(field << 3 | kind));
    }

    pub fn int(mut self, field: u32, value: i64) -> Message {
        self.key(field, 0);
        self.varint(value as u64);
        self
    }

    pub fn double(mut self, field: u32, value: f64) -> Message {
        self.key(field, 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub fn float(mut self, field: u32, value: f32) -> Message {
        self.key(field, 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub fn bytes(mut self, field: u32, bytes: &[u8]) -> Message {
        self.key(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    pub fn message(self, field: u32, message: &Message) -> Message {
        self.bytes(field, &message.0)
    }

    pub fn doubles(self, field: u32, values: &[f64]) -> Message {
        let packed: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.bytes(field, &packed)
    }

    /// Writes it as one record.
    pub fn write_record(&self, to: &mut impl Write) -> io::Result<()> {
        let length = (self.0.len() as u64).to_le_bytes();
        to.write_all(&length)?;
        to.write_all(&masked_crc(&length).to_le_bytes())?;
        to.write_all(&self.0)?;
        to.write_all(&masked_crc(&self.0).to_le_bytes())
    }
}

/// The masked checksum of records: CRC-32C, rotated and offset, since a CRC of data with CRCs is problematic.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32::<0x82f6_3b78>(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The CRC-32 of bytes for a bit-reversed polynomial: `0x82f63b78` is Castagnoli's, `0xedb88320` that of PNG and gzip.
pub(super) fn crc32<const POLYNOMIAL: u32>(bytes: &[u8]) -> u32 {
    struct Table<const POLYNOMIAL: u32>;
    impl<const POLYNOMIAL: u32> Table<POLYNOMIAL> {
        const ENTRIES: [u32; 256] = {
            let (mut table, mut at) = ([0; 256], 0);
            while at < 256 {
                let (mut crc, mut bit) = (at as u32, 0);
                while bit < 8 {
                    crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
                    bit += 1;
                }
                table[at] = crc;
                at += 1;
            }
            table
        };
    }
    let table = &Table::<POLYNOMIAL>::ENTRIES;
    !bytes.iter().fold(!0, |crc, &byte| table[((crc ^ u32::from(byte)) & 0xff) as usize] ^ crc >> 8)
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_standards() {
        // The check values of the two polynomials: the digits from 1 to 9.
        assert_eq!(crc32::<0x82f6_3b78>(b"123456789"), 0xe306_9283);
        assert_eq!(crc32::<0xedb8_8320>(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn a_message_has_its_fields_in_order() {
        let inner = Message::new().int(1, -1);
        let message = Message::new().int(1, 300).float(2, 1.0).message(3, &inner);
        let expected = [8, 0xac, 2, 0x15, 0, 0, 0x80, 0x3f, 0x1a, 11, 8];
        assert_eq!(message.0[..11], expected);
        assert_eq!(message.0[11..], [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
    }
}
