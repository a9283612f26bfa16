//! Reads the ELF headers of a loaded object where the loader mapped them.

/// A loaded object, seen through the program headers at its start.
#[derive(Clone, Copy, Debug)]
pub struct Image {
    /// Run-time address minus address in the file.
    pub bias: u64,
    headers: *const ProgramHeader,
    count: usize,
}

/// ELF-64 program header (ELF specification, figure 2-1).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProgramHeader {
    pub kind: u32,
    pub flags: u32,
    pub offset: u64,
    pub address: u64,
    pub physical_address: u64,
    pub file_bytes: u64,
    pub memory_bytes: u64,
    pub align: u64,
}

const PAGE: u64 = 4096;
const MAGIC: [u8; 8] = [0x7f, b'E', b'L', b'F', 2, 1, 1, 0];
/// `PT_LOAD`.
pub const LOAD: u32 = 1;
/// `PT_NOTE`.
pub const NOTE: u32 = 4;
/// `PT_GNU_EH_FRAME`.
pub const FRAMES: u32 = 0x6474_e550;
/// `PF_R`.
pub const READABLE: u32 = 4;

/// The build id in the notes `bytes` (ELF specification, "Note Section").
pub fn build_id(bytes: &[u8]) -> Option<&[u8]> {
    const BUILD_ID: u32 = 3;
    let mut rest = bytes;
    while rest.len() >= 12 {
        let word = |at: usize| Some(u32::from_le_bytes(rest.get(at..at + 4)?.try_into().ok()?));
        let (name_len, len, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
        let name_end = name_len.checked_next_multiple_of(4)?.checked_add(12)?;
        let end = name_end.checked_add(len)?;
        if kind == BUILD_ID && rest.get(12..12 + name_len)? == b"GNU\0" {
            return rest.get(name_end..end);
        }
        rest = rest.get(end.checked_next_multiple_of(4)?..)?;
    }
    None
}

#[repr(C)]
struct ElfHeader {
    ident: [u8; 16],
    kind: u16,
    machine: u16,
    version: u32,
    entry: u64,
    program_headers: u64,
    section_headers: u64,
    flags: u32,
    header_bytes: u16,
    program_header_bytes: u16,
    program_header_count: u16,
    section_header_bytes: u16,
    section_header_count: u16,
    section_names: u16,
}

impl Image {
    /// The object whose first segment begins at `map_start`. `None` unless file and program headers lie in
    /// the first page of it, as every linker puts them.
    ///
    /// # Safety
    /// The page at `map_start` must be readable while the image is in use.
    pub unsafe fn at(map_start: u64) -> Option<Image> {
        if map_start == 0 || !map_start.is_multiple_of(PAGE) {
            return None;
        }
        // SAFETY: the header fits the page that the caller vouches for; any bytes make a valid value.
        let header = unsafe { &*(map_start as *const ElfHeader) };
        let (offset, count) = (header.program_headers, usize::from(header.program_header_count));
        let bytes = count as u64 * size_of::<ProgramHeader>() as u64;
        if header.ident[..7] != MAGIC[..7]
            || usize::from(header.program_header_bytes) != size_of::<ProgramHeader>()
            || offset % 8 != 0
            || offset.checked_add(bytes)? > PAGE
        {
            return None;
        }
        let mut image = Image { bias: 0, headers: (map_start + offset) as *const ProgramHeader, count };
        let first = image.headers().iter().find(|header| header.kind == LOAD)?;
        image.bias = map_start.wrapping_sub(first.address & !(PAGE - 1));
        Some(image)
    }

    pub fn headers(&self) -> &[ProgramHeader] {
        // SAFETY: `at` checked that the headers lie in a page readable while the image is in use.
        unsafe { core::slice::from_raw_parts(self.headers, self.count) }
    }

    /// Address of `.eh_frame_hdr`; 0 if there is none.
    pub fn frame_header(&self) -> u64 {
        let header = self.headers().iter().find(|header| header.kind == FRAMES);
        header.map_or(0, |header| self.bias.wrapping_add(header.address))
    }

    /// Address after the last segment.
    pub fn end(&self) -> u64 {
        let loads = self.headers().iter().filter(|header| header.kind == LOAD);
        let end = loads.map(|header| header.address.wrapping_add(header.memory_bytes)).max();
        self.bias.wrapping_add(end.unwrap_or(0))
    }

    /// The readable segment, as far as it comes from the file, that holds `address`.
    pub fn segment(&self, address: u64) -> Option<(u64, u64)> {
        self.headers()
            .iter()
            .filter(|header| header.kind == LOAD && header.flags & READABLE != 0)
            .map(|header| {
                let start = self.bias.wrapping_add(header.address);
                (start, start.wrapping_add(header.file_bytes))
            })
            .find(|(start, end)| (*start..*end).contains(&address))
    }
}
