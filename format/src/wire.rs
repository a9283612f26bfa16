//! Wire encoding of metadata records, as docs/FORMAT.md §4.3 specifies it: the fields of a record in order, each by its
//! type. Reads and writes bytes only; which records there are is in [`crate::meta`].

use crate::{FormatError, Result};

/// Largest integer that is its own byte; the next three values announce 2, 4 and 8 bytes.
const LARGEST_BYTE: u8 = 250;
const TWO_BYTES: u8 = 251;
const FOUR_BYTES: u8 = 252;
const EIGHT_BYTES: u8 = 253;

/// A type that metadata fields can have.
pub(crate) trait Wire: Sized {
    /// The type's name in docs/FORMAT.md.
    fn type_name() -> String;
    /// Appends the value.
    fn put(&self, out: &mut Vec<u8>);
    /// Reads a value.
    fn get(input: &mut Input<'_>) -> Result<Self>;
}

/// Bytes that are being read, front to back.
pub(crate) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    /// All of `bytes`.
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes that are not read yet.
    pub(crate) const fn len(&self) -> usize {
        self.rest.len()
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let Some((head, tail)) = self.rest.split_at_checked(len) else {
            return Err(FormatError::Truncated { what: "a metadata record", needed: len, have: self.rest.len() });
        };
        self.rest = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn integer(&mut self) -> Result<u64> {
        let [first] = self.array()?;
        match first {
            0..=LARGEST_BYTE => Ok(u64::from(first)),
            TWO_BYTES => Ok(u64::from(u16::from_le_bytes(self.array()?))),
            FOUR_BYTES => Ok(u64::from(u32::from_le_bytes(self.array()?))),
            EIGHT_BYTES => Ok(u64::from_le_bytes(self.array()?)),
            _ => Err(malformed(format!("{first:#04x} begins no integer"))),
        }
    }

    /// The length of a list or a string, which has at least one byte for each item.
    fn length(&mut self) -> Result<usize> {
        let len = self.integer()?;
        match usize::try_from(len) {
            Ok(len) if len <= self.rest.len() => Ok(len),
            _ => Err(malformed(format!("a list of {len} items in {} bytes", self.rest.len()))),
        }
    }
}

fn malformed(why: String) -> FormatError {
    FormatError::malformed("a metadata record", why)
}

fn put_integer(value: u64, out: &mut Vec<u8>) {
    if value <= u64::from(LARGEST_BYTE) {
        out.push(value as u8);
    } else if let Ok(value) = u16::try_from(value) {
        out.push(TWO_BYTES);
        out.extend_from_slice(&value.to_le_bytes());
    } else if let Ok(value) = u32::try_from(value) {
        out.push(FOUR_BYTES);
        out.extend_from_slice(&value.to_le_bytes());
    } else {
        out.push(EIGHT_BYTES);
        out.extend_from_slice(&value.to_le_bytes());
    }
}

macro_rules! unsigned {
    ($($type:ident),*) => {
        $(impl Wire for $type {
            fn type_name() -> String {
                stringify!($type).into()
            }

            fn put(&self, out: &mut Vec<u8>) {
                put_integer(u64::from(*self), out);
            }

            fn get(input: &mut Input<'_>) -> Result<Self> {
                let value = input.integer()?;
                Self::try_from(value).map_err(|_| malformed(format!("{value} is no {}", stringify!($type))))
            }
        })*
    };
}

unsigned!(u16, u32, u64);

impl Wire for u8 {
    fn type_name() -> String {
        "u8".into()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }

    fn get(input: &mut Input<'_>) -> Result<Self> {
        let [byte] = input.array()?;
        Ok(byte)
    }
}

impl Wire for bool {
    fn type_name() -> String {
        "bool".into()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn get(input: &mut Input<'_>) -> Result<Self> {
        match u8::get(input)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(malformed(format!("{other} is no bool"))),
        }
    }
}

impl Wire for i32 {
    fn type_name() -> String {
        "i32".into()
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_integer(u64::from(((self << 1) ^ (self >> 31)) as u32), out);
    }

    fn get(input: &mut Input<'_>) -> Result<Self> {
        let value = u32::get(input)?;
        Ok((value >> 1) as Self ^ -((value & 1) as Self))
    }
}

impl Wire for String {
    fn type_name() -> String {
        "text".into()
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_integer(self.len() as u64, out);
        out.extend_from_slice(self.as_bytes());
    }

    fn get(input: &mut Input<'_>) -> Result<Self> {
        let len = input.length()?;
        let text = std::str::from_utf8(input.take(len)?);
        text.map(Into::into).map_err(|_| malformed("text that is not UTF-8".into()))
    }
}

impl<const N: usize> Wire for [u8; N] {
    fn type_name() -> String {
        format!("{N} bytes")
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn get(input: &mut Input<'_>) -> Result<Self> {
        input.array()
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn type_name() -> String {
        format!("list of {}", T::type_name())
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_integer(self.len() as u64, out);
        self.iter().for_each(|item| item.put(out));
    }

    fn get(input: &mut Input<'_>) -> Result<Self> {
        let len = input.length()?;
        // No more is reserved than the bytes can hold.
        let mut list = Self::with_capacity(len.min(1 << 16));
        for _ in 0..len {
            list.push(T::get(input)?);
        }
        Ok(list)
    }
}

impl<T: Wire> Wire for Option<T> {
    fn type_name() -> String {
        format!("optional {}", T::type_name())
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_some()));
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn get(input: &mut Input<'_>) -> Result<Self> {
        if bool::get(input)? { T::get(input).map(Some) } else { Ok(None) }
    }
}

impl<T: Wire> Wire for Box<T> {
    fn type_name() -> String {
        T::type_name()
    }

    fn put(&self, out: &mut Vec<u8>) {
        T::put(self, out);
    }

    fn get(input: &mut Input<'_>) -> Result<Self> {
        T::get(input).map(Self::new)
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn type_name() -> String {
        format!("({}, {})", A::type_name(), B::type_name())
    }

    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn get(input: &mut Input<'_>) -> Result<Self> {
        Ok((A::get(input)?, B::get(input)?))
    }
}

/// Declares a structure whose wire encoding is its fields in order.
macro_rules! wire_struct {
    ($(#[$attribute:meta])* pub struct $name:ident { $($(#[$about:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$attribute])*
        pub struct $name { $($(#[$about])* pub $field: $type,)* }

        impl $crate::wire::Wire for $name {
            fn type_name() -> String {
                stringify!($name).into()
            }

            fn put(&self, out: &mut Vec<u8>) {
                $($crate::wire::Wire::put(&self.$field, out);)*
            }

            fn get(input: &mut $crate::wire::Input<'_>) -> $crate::Result<Self> {
                // Fields of a structure literal are evaluated in the order in which they are written.
                Ok(Self { $($field: <$type as $crate::wire::Wire>::get(input)?,)* })
            }
        }

        impl $name {
            /// Names and types of the fields in wire order, as docs/FORMAT.md lists them.
            #[must_use]
            pub fn fields() -> Vec<(&'static str, String)> {
                vec![$((stringify!($field), <$type as $crate::wire::Wire>::type_name())),*]
            }
        }
    };
}

/// Declares an enumeration without fields whose wire encoding is the number of the variant.
macro_rules! wire_enum {
    ($(#[$attribute:meta])* pub enum $name:ident { $($(#[$about:meta])* $variant:ident = $number:literal,)* }) => {
        $(#[$attribute])*
        pub enum $name { $($(#[$about])* $variant = $number,)* }

        impl $crate::wire::Wire for $name {
            fn type_name() -> String {
                stringify!($name).into()
            }

            fn put(&self, out: &mut Vec<u8>) {
                $crate::wire::Wire::put(&(*self as u32), out);
            }

            fn get(input: &mut $crate::wire::Input<'_>) -> $crate::Result<Self> {
                match <u32 as $crate::wire::Wire>::get(input)? {
                    $($number => Ok(Self::$variant),)*
                    other => Err($crate::FormatError::malformed(
                        "a metadata record",
                        format!("{other} is no {}", stringify!($name)),
                    )),
                }
            }
        }

        impl $name {
            /// Names and numbers of the variants, as docs/FORMAT.md lists them.
            #[must_use]
            pub fn variants() -> Vec<(&'static str, u32)> {
                vec![$((stringify!($variant), $number)),*]
            }
        }
    };
}

pub(crate) use {wire_enum, wire_struct};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Everything = (((u8, u16), (u32, u64)), ((i32, bool), (String, Vec<Vec<u8>>)));
    type More = (Option<(u64, String)>, [u8; 16]);

    fn ours<T: Wire>(value: &T) -> Vec<u8> {
        let mut out = Vec::new();
        value.put(&mut out);
        out
    }

    fn back<T: Wire>(bytes: &[u8]) -> Result<(T, usize)> {
        let mut input = Input::new(bytes);
        let value = T::get(&mut input)?;
        Ok((value, bytes.len() - input.len()))
    }

    proptest! {
        /// Recordings of the first edition were written by bincode 2 in its standard configuration.
        #[test]
        fn the_bytes_are_those_of_bincode(a: Everything, b: More) {
            let config = bincode::config::standard();
            prop_assert_eq!(ours(&a), bincode::serde::encode_to_vec(&a, config).unwrap());
            prop_assert_eq!(ours(&b), bincode::serde::encode_to_vec(&b, config).unwrap());
            prop_assert_eq!(back::<Everything>(&ours(&a)).unwrap(), (a.clone(), ours(&a).len()));
            prop_assert_eq!(back::<More>(&ours(&b)).unwrap(), (b.clone(), ours(&b).len()));
        }

        #[test]
        fn hostile_bytes_give_what_bincode_gives_or_an_error(bytes: Vec<u8>) {
            let config = bincode::config::standard().with_limit::<65536>();
            let theirs = bincode::serde::decode_from_slice::<More, _>(&bytes, config).ok();
            prop_assert_eq!(back::<More>(&bytes).ok(), theirs);
        }
    }

    #[test]
    fn a_list_cannot_be_longer_than_its_bytes() {
        assert!(back::<Vec<u8>>(&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0x40]).is_err());
        assert!(back::<Vec<u64>>(&[3, 1, 2]).is_err());
    }
}
