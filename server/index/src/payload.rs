//! Payloads of a recording's blocks, for [`tracehound_format::block::BlockHeader::open_payload`].

/// Decompresses a zstd payload of known raw length.
///
/// # Errors
/// When it is none, in words.
pub fn unzstd(stored: &[u8], len: usize, raw: &mut Vec<u8>) -> Result<(), String> {
    raw.resize(len, 0);
    let got = zstd::bulk::decompress_to_buffer(stored, &mut raw[..]).map_err(|e| e.to_string())?;
    raw.truncate(got);
    Ok(())
}
