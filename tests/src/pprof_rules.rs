//! The rules by which Parca accepts a profile of pprof (its `pkg/normalizer/validate.go`), over a decoder of protocol
//! buffers that owes nothing to the encoder.

use std::collections::BTreeMap;

/// A field of a message: its number, and its value or its bytes.
enum Field<'a> {
    Number(u64, u64),
    Bytes(u64, &'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().expect("a varint ends");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
    }
    panic!("a varint of more than ten bytes");
}

fn fields(mut bytes: &[u8]) -> Vec<Field<'_>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        match key & 7 {
            0 => fields.push(Field::Number(key >> 3, varint(&mut bytes))),
            2 => {
                let len = varint(&mut bytes) as usize;
                let (inner, rest) = bytes.split_at(len);
                fields.push(Field::Bytes(key >> 3, inner));
                bytes = rest;
            }
            other => panic!("profile.proto has no fields of wire type {other}"),
        }
    }
    fields
}

/// The numbers of a field, packed or not.
fn numbers(message: &[u8], wanted: u64) -> Vec<u64> {
    let mut found = Vec::new();
    for field in fields(message) {
        match field {
            Field::Number(number, value) if number == wanted => found.push(value),
            Field::Bytes(number, mut packed) if number == wanted => {
                while !packed.is_empty() {
                    found.push(varint(&mut packed));
                }
            }
            _ => {}
        }
    }
    found
}

fn one(message: &[u8], wanted: u64) -> u64 {
    numbers(message, wanted).last().copied().unwrap_or(0)
}

/// When a profile is of, in nanoseconds since 1970, and how long it took, in nanoseconds; 0 is none.
#[must_use]
pub fn time_and_duration(profile: &[u8]) -> (u64, u64) {
    (one(profile, 9), one(profile, 10))
}

/// Whether a profile has samples: one of a program that has just begun may have none.
#[must_use]
pub fn has_samples(profile: &[u8]) -> bool {
    fields(profile).iter().any(|field| matches!(field, Field::Bytes(2, _)))
}

/// What a profile that passed adds up to, by sample type.
///
/// # Panics
/// With the rule that the profile breaks.
#[must_use]
pub fn totals(profile: &[u8]) -> BTreeMap<String, u64> {
    let mut messages: BTreeMap<u64, Vec<&[u8]>> = BTreeMap::new();
    let mut plain: BTreeMap<u64, u64> = BTreeMap::new();
    for field in fields(profile) {
        match field {
            Field::Bytes(number, bytes) => messages.entry(number).or_default().push(bytes),
            Field::Number(number, value) => {
                plain.insert(number, value);
            }
        }
    }
    let all = |number: u64| messages.get(&number).map_or(&[][..], Vec::as_slice);
    let strings: Vec<&str> = all(6).iter().map(|text| std::str::from_utf8(text).expect("strings are UTF-8")).collect();
    let string = |id: u64| *strings.get(id as usize).unwrap_or_else(|| panic!("there is no string {id}"));
    assert_eq!(string(0), "", "string 0 is the empty one");
    let (types, samples) = (all(1), all(2));
    assert!(!types.is_empty() && !samples.is_empty(), "sample types and samples");
    let [period_type] = all(11) else { panic!("one period type: Parca's server answers no more without") };
    assert_eq!((string(one(period_type, 1)), string(one(period_type, 2))), ("space", "bytes"));
    assert!(plain.get(&12).is_some_and(|&period| period > 0), "a period");

    // Mappings, functions, locations: numbered from 1 without holes, in the order in which they lie.
    let mut counts = BTreeMap::new();
    for (number, what) in [(3, "mapping"), (5, "function"), (4, "location")] {
        for (at, message) in (1..).zip(all(number)) {
            assert_eq!(one(message, 1), at, "{what} id is not sequential");
        }
        counts.insert(what, all(number).len() as u64);
    }
    for function in all(5) {
        for field in 2..=4 {
            string(one(function, field));
        }
    }
    for location in all(4) {
        assert!(one(location, 2) <= counts["mapping"], "a location of no mapping");
        for field in fields(location) {
            if let Field::Bytes(4, line) = field {
                assert!((1..=counts["function"]).contains(&one(line, 1)), "a line of no function");
            }
        }
    }
    let mut totals = vec![0; types.len()];
    for sample in samples {
        let values = numbers(sample, 2);
        assert_eq!(values.len(), types.len(), "as many values as sample types");
        totals.iter_mut().zip(values).for_each(|(total, value)| *total += value);
        assert!(numbers(sample, 1).iter().all(|id| (1..=counts["location"]).contains(id)), "a sample at no location");
        for field in fields(sample) {
            if let Field::Bytes(3, label) = field {
                assert_ne!(string(one(label, 1)), "", "a label has a key");
            }
        }
    }
    types.iter().map(|kind| string(one(kind, 1)).to_owned()).zip(totals).collect()
}
