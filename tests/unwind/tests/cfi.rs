//! Our reader of unwind information against gimli: every row of every entry of the libraries and programs installed
//! on this machine, and damaged copies of one.

use std::fs;
use std::path::PathBuf;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, LittleEndian, Register, RegisterRule, UnwindContext, UnwindSection,
};
use object::{Object, ObjectSection};
use tracehound_unwind::cfi::bytes::Bytes;
use tracehound_unwind::cfi::compile::compile;
use tracehound_unwind::cfi::entry::{Fde, Parsed, Section, parse};
use tracehound_unwind::cfi::index;
use tracehound_unwind::cfi::program::{Cfa, FullRow, Recovery, ShortRow, register, row_at};
use tracehound_unwind::rule::{Rule, RuleKind};

/// Rows that a run compares at least, and at most.
const ENOUGH: u64 = 300_000;
const AT_MOST: u64 = 400_000;

#[derive(Default)]
struct Tally {
    files: u64,
    rows: u64,
    general: u64,
}

#[test]
fn every_row_is_what_gimli_reads() {
    let limit = std::env::var("CFI_ROWS").map_or(AT_MOST, |rows| rows.parse().expect("CFI_ROWS is a number"));
    let mut tally = Tally::default();
    for path in files() {
        if tally.rows >= limit {
            break;
        }
        if let Ok(data) = fs::read(&path) {
            compare_file(&path.display().to_string(), &data, &mut tally);
        }
    }
    println!("{} files, {} rows, {} of them not for the rules", tally.files, tally.rows, tally.general);
    assert!(tally.rows >= ENOUGH.min(limit), "only {} rows", tally.rows);
    assert!(tally.general * 100 < tally.rows, "{} of {} rows do not fit the rules", tally.general, tally.rows);
}

/// Shared libraries first: they hold the odd, hand-written information.
fn files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/usr/bin"] {
        let Ok(entries) = fs::read_dir(folder) else { continue };
        let mut here: Vec<PathBuf> =
            entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file() && !path.is_symlink()).collect();
        here.sort();
        files.extend(here);
    }
    let first = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        !["libc.so", "ld-linux", "libcrypto", "libstdc++", "libm.so"].iter().any(|known| name.starts_with(known))
    };
    files.sort_by_key(first);
    files
}

struct Frames<'a> {
    data: &'a [u8],
    /// Address in the file minus address in memory.
    delta: u64,
}

impl Frames<'_> {
    fn window(&self) -> Bytes {
        let start = self.data.as_ptr() as u64;
        // SAFETY: the slice outlives the window in these tests.
        unsafe { Bytes::new(start, start + self.data.len() as u64, self.delta) }
    }

    fn entry(&self, offset: usize) -> Option<Fde> {
        match parse(self.window(), self.data.as_ptr() as u64 + offset as u64, Section::EhFrame)? {
            Parsed::Entry(entry) => Some(entry),
            _ => None,
        }
    }
}

fn compare_file(name: &str, data: &[u8], tally: &mut Tally) {
    let Ok(file) = object::File::parse(data) else { return };
    if file.architecture() != object::Architecture::X86_64 {
        return;
    }
    let Some(section) = file.section_by_name(".eh_frame") else { return };
    let Ok(bytes) = section.data() else { return };
    let frames = Frames { data: bytes, delta: section.address().wrapping_sub(bytes.as_ptr() as u64) };
    let mut gimli_section = EhFrame::new(bytes, LittleEndian);
    gimli_section.set_address_size(8);
    let text = file.section_by_name(".text").map_or(0, |text| text.address());
    let bases = BaseAddresses::default().set_eh_frame(section.address()).set_text(text);
    let mut context = UnwindContext::new();
    let mut entries = gimli_section.entries(&bases);
    tally.files += 1;
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else { continue };
        let Ok(mut table) = fde.rows(&gimli_section, &bases, &mut context) else { continue };
        let own = frames.entry(fde.offset()).unwrap_or_else(|| panic!("{name}: no entry at {:#x}", fde.offset()));
        assert_eq!((own.begin, own.length), (fde.initial_address(), fde.len()), "{name}");
        while let Ok(Some(row)) = table.next_row() {
            if row.start_address() >= row.end_address() {
                continue;
            }
            tally.rows += 1;
            for pc in [row.start_address(), row.end_address() - 1] {
                compare_row(name, &frames, &own, pc, row, tally);
            }
        }
    }
}

fn compare_row(
    name: &str,
    frames: &Frames<'_>,
    entry: &Fde,
    pc: u64,
    row: &gimli::UnwindTableRow<usize>,
    tally: &mut Tally,
) {
    let place = || format!("{name}, pc {pc:#x}: gimli reads {row:?}");
    let full: FullRow = row_at::<FullRow, 8>(entry, pc).unwrap_or_else(|| panic!("no row in {}", place()));
    let short: ShortRow = row_at::<ShortRow, 8>(entry, pc).unwrap_or_else(|| panic!("no row in {}", place()));
    assert!(same_cfa(&full.cfa, row.cfa()), "{:?} in {}", full.cfa, place());
    for number in 0..register::COUNT as u64 {
        let theirs = row.register(Register(number as u16));
        let ours = full.registers[number as usize];
        assert!(same_recovery(ours, theirs.as_ref()), "register {number} is {ours:?} in {}", place());
    }
    assert_eq!(short.cfa, full.cfa);
    assert_eq!(short.rbp, full.registers[register::RBP as usize]);
    assert_eq!(short.return_address, full.registers[register::RETURN as usize]);
    let rule = compile(entry, frames.window(), pc);
    tally.general += u64::from(rule == Rule::GENERAL);
    assert!(means_the_same(rule, row), "rule {:?} {} {} in {}", rule.kind(), rule.n(), rule.m(), place());
}

fn same_cfa(ours: &Cfa, theirs: &CfaRule<usize>) -> bool {
    match (ours, theirs) {
        (Cfa::Register { register, offset }, CfaRule::RegisterAndOffset { register: other, offset: distance }) => {
            *register == u64::from(other.0) && offset == distance
        }
        (Cfa::Expression(_), CfaRule::Expression(_)) => true,
        _ => false,
    }
}

fn same_recovery(ours: Recovery, theirs: Option<&RegisterRule<usize>>) -> bool {
    match (ours, theirs) {
        (Recovery::Unset, None) => true,
        (Recovery::Undefined, Some(RegisterRule::Undefined)) => true,
        (Recovery::Same, Some(RegisterRule::SameValue)) => true,
        (Recovery::Offset(a), Some(RegisterRule::Offset(b))) => a == *b,
        (Recovery::ValueOffset(a), Some(RegisterRule::ValOffset(b))) => a == *b,
        (Recovery::Register(a), Some(RegisterRule::Register(b))) => a == u64::from(b.0),
        (Recovery::Expression(_), Some(RegisterRule::Expression(_))) => true,
        (Recovery::ValueExpression(_), Some(RegisterRule::ValExpression(_))) => true,
        _ => false,
    }
}

/// Whether a rule says what the row says, read from the row afresh.
fn means_the_same(rule: Rule, row: &gimli::UnwindTableRow<usize>) -> bool {
    let return_address = row.register(Register(16));
    let at_cfa = matches!(return_address, Some(RegisterRule::Offset(-8)));
    let rbp = match row.register(Register(6)) {
        None | Some(RegisterRule::SameValue | RegisterRule::Undefined) => Some(0),
        Some(RegisterRule::Offset(offset)) => Some(-offset as u64),
        _ => None,
    };
    match rule.kind() {
        RuleKind::Sp | RuleKind::Frame => {
            let register = if rule.kind() == RuleKind::Sp { 7 } else { 6 };
            let cfa = match row.cfa() {
                CfaRule::RegisterAndOffset { register: other, offset } => {
                    other.0 == register && *offset as u64 == rule.n()
                }
                CfaRule::Expression(_) => rule.kind() == RuleKind::Sp && (8..=32).contains(&rule.n()),
            };
            at_cfa && cfa && rbp == Some(rule.m())
        }
        RuleKind::Drap => at_cfa && rbp.is_none() && rule.n() > 0 && matches!(row.cfa(), CfaRule::Expression(_)),
        RuleKind::Signal => matches!(row.cfa(), CfaRule::Expression(_)) && rbp.is_none(),
        RuleKind::End => matches!(return_address, Some(RegisterRule::Undefined)),
        RuleKind::General => true,
        RuleKind::Missing | RuleKind::Unknown => false,
    }
}

/// Damaged information must lead to a wrong rule or to none, never to a read outside of it.
#[test]
fn damaged_information_is_survived() {
    let data = fs::read("/lib/x86_64-linux-gnu/libc.so.6").expect("the C library");
    let file = object::File::parse(&*data).expect("an ELF file");
    let header = file.section_by_name(".eh_frame_hdr").expect("an index");
    let frames = file.section_by_name(".eh_frame").expect("unwind information");
    let distance = (frames.address() - header.address()) as usize;
    let (header, frames) = (header.data().expect("its data"), frames.data().expect("its data"));
    // Header and a part of the frames at the very end of a mapping, with an unreadable page after it.
    let bytes = distance + frames.len();
    let pages = bytes.next_multiple_of(4096);
    // SAFETY: a fresh mapping; its last page is made unreadable.
    let map = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let map = libc::mmap(std::ptr::null_mut(), pages + 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert_ne!(map, libc::MAP_FAILED);
        assert_eq!(libc::mprotect(map.cast::<u8>().add(pages).cast(), 4096, libc::PROT_NONE), 0);
        map.cast::<u8>().add(pages - bytes)
    };
    // SAFETY: the mapping is this test's own and has this many bytes.
    let memory = unsafe { std::slice::from_raw_parts_mut(map, bytes) };
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) as usize % below
    };
    let start = map as u64;
    let mut found = 0;
    for _ in 0..300 {
        memory[..header.len()].copy_from_slice(header);
        memory[distance..].copy_from_slice(frames);
        for _ in 0..next(2000) + 1 {
            let at = if next(200) == 0 { next(64) } else { next(bytes) };
            memory[at] = match next(3) {
                0 => 0xff,
                1 => 0,
                _ => next(256) as u8,
            };
        }
        let window = |address: u64| {
            // SAFETY: the mapping outlives the test.
            (start..start + bytes as u64)
                .contains(&address)
                .then(|| unsafe { Bytes::new(start, start + bytes as u64, 0) })
        };
        for _ in 0..300 {
            let pc = start.wrapping_sub(next(2 << 20) as u64);
            if let Some((entry, window)) = index::lookup(start, pc, window) {
                found += 1;
                compile(&entry, window, pc);
                row_at::<FullRow, 4>(&entry, pc);
            }
        }
    }
    assert!(found > 10_000, "only {found} entries were found at all");
}
