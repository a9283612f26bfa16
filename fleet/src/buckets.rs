//! Buckets: stores of three services, by their URLs. Who may use them, and where they are if not at their usual address,
//! is said by the variables that each service's own tools have.
//!
//! ```text
//! s3://BUCKET/PREFIX      AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT, …
//! gs://BUCKET/PREFIX      GOOGLE_SERVICE_ACCOUNT, GOOGLE_APPLICATION_CREDENTIALS, GOOGLE_BASE_URL, …
//! az://CONTAINER/PREFIX   AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_ENDPOINT, …
//! ```

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use object_store::ObjectStore;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;

/// How a bucket is named, for messages.
pub const FORMS: &str = "s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX";

/// The bucket of a URL, and the prefix in it; `None` if the URL is of none.
///
/// # Errors
/// When the URL names no bucket, or variables do not fit.
pub fn open(url: &str) -> Result<Option<(Arc<dyn ObjectStore>, Path)>> {
    let Some((scheme @ ("s3" | "gs" | "az"), rest)) = url.split_once("://") else { return Ok(None) };
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        bail!("{url} names no bucket: a store is file:///FOLDER or {FORMS}");
    }
    let built: object_store::Result<Arc<dyn ObjectStore>> = match scheme {
        "s3" => AmazonS3Builder::from_env().with_bucket_name(bucket).build().map(|s3| Arc::new(s3) as _),
        "gs" => GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket).build().map(|gs| Arc::new(gs) as _),
        _ => MicrosoftAzureBuilder::from_env().with_container_name(bucket).build().map(|az| Arc::new(az) as _),
    };
    let objects = built.with_context(|| format!("cannot open {url}"))?;
    let prefix = Path::parse(prefix.trim_matches('/')).with_context(|| format!("cannot open {url}"))?;
    Ok(Some((objects, prefix)))
}
