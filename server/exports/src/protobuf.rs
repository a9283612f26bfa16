//! Protocol buffers, written: the rules of the encoding that profiles need, see
//! `docs/decisions/0052-protobuf.md`. A message grows in one buffer, so that fields can be written as they come.

use tracehound_format::varint::put;

/// A message being made.
#[derive(Default)]
pub(crate) struct Message(pub(crate) Vec<u8>);

impl Message {
    pub(crate) fn number(&mut self, field: u64, value: u64) {
        if value != 0 {
            put(&mut self.0, field << 3);
            put(&mut self.0, value);
        }
    }

    /// A number that is written even if it is zero, as those of a oneof are.
    pub(crate) fn member(&mut self, field: u64, value: u64) {
        put(&mut self.0, field << 3);
        put(&mut self.0, value);
    }

    pub(crate) fn fixed64(&mut self, field: u64, value: u64) {
        put(&mut self.0, field << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, field: u64, bytes: &[u8]) {
        put(&mut self.0, field << 3 | 2);
        put(&mut self.0, bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn packed(&mut self, field: u64, values: impl Iterator<Item = u64>) {
        let mut bytes = Vec::new();
        values.for_each(|value| put(&mut bytes, value));
        self.bytes(field, &bytes);
    }

    pub(crate) fn message(&mut self, field: u64, build: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        build(&mut inner);
        self.bytes(field, &inner.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_encoded_as_the_specification_says() {
        // Examples of https://protobuf.dev/programming-guides/encoding/
        let mut message = Message::default();
        message.number(1, 150);
        message.bytes(2, b"testing");
        message.message(3, |inner| inner.number(1, 150));
        message.packed(6, [3, 270, 86942].into_iter());
        message.member(1, 0);
        message.fixed64(4, 258);
        let expected = [
            &[0x08, 0x96, 0x01][..],
            b"\x12\x07testing",
            &[0x1a, 0x03, 0x08, 0x96, 0x01],
            &[0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05],
            &[0x08, 0x00],
            &[0x21, 0x02, 0x01, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(message.0, expected.concat());
    }
}
