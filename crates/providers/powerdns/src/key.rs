//! The API key: never printed, and read again from its file for every call, so that a rotation needs no restart.

use std::{fmt, path::PathBuf};

use crate::error::ServerError;

/// An API key. Its `Debug` shows nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// A key from its text; surrounding white space is dropped.
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// True when there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

/// Where the key comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// Given once.
    Text(ApiKey),
    /// A file, such as a mounted Secret.
    File(PathBuf),
}

impl KeySource {
    /// The key as it is now.
    pub(crate) async fn read(&self) -> Result<ApiKey, ServerError> {
        match self {
            Self::Text(key) => Ok(key.clone()),
            Self::File(path) => {
                let text = tokio::fs::read_to_string(path)
                    .await
                    .map_err(|error| ServerError::Key { why: format!("{}: {error}", path.display()) })?;
                let key = ApiKey::new(&text);
                if key.is_empty() {
                    return Err(ServerError::Key { why: format!("{} is empty", path.display()) });
                }
                Ok(key)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_never_printed() {
        let source = KeySource::Text(ApiKey::new("s3cret\n"));
        assert!(!format!("{source:?}").contains("s3cret"));
    }
}
