//! The page: the files of `web/dist`, inside the binary. A build without them is complete but for the page.

use rust_embed::RustEmbed;

/// The files by their path below `web/dist`.
#[derive(RustEmbed)]
#[folder = "../../web/dist"]
#[allow_missing = true]
pub struct Dist;
