//! A password, token or key: never printed, and read from its file at each use, so that a rotation needs no restart.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

/// Where a secret comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// The value itself.
    Value(String),
    /// A file, such as a mounted Kubernetes Secret.
    File(PathBuf),
}

/// Why a secret cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SecretError {
    /// The file cannot be read.
    #[error("{path} cannot be read: {why}")]
    Unreadable {
        /// The file.
        path: String,
        /// The error of the file system.
        why: String,
    },
    /// The file has nothing in it.
    #[error("{path} is empty")]
    Empty {
        /// The file.
        path: String,
    },
}

impl Secret {
    /// The secret as it is now. Line ends at the end of a file do not count.
    pub async fn read(&self) -> Result<SecretText, SecretError> {
        let path = match self {
            Self::Value(value) => return Ok(SecretText(value.clone())),
            Self::File(path) => path,
        };
        let shown = path.display().to_string();
        let text = tokio::fs::read_to_string(path)
            .await
            .map_err(|error| SecretError::Unreadable { path: shown.clone(), why: error.to_string() })?;
        if text.trim().is_empty() {
            return Err(SecretError::Empty { path: shown });
        }
        Ok(SecretText(text.trim_end_matches(['\r', '\n']).to_owned()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(_) => f.write_str("Secret(***)"),
            Self::File(path) => write!(f, "Secret({})", path.display()),
        }
    }
}

/// The text of a secret: prints as `***` whichever way it is printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl SecretText {
    /// The text itself, for the one place that sends it to its owner.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_secret_is_never_printed() {
        let secret = Secret::Value("hunter2".into());
        let text = secret.read().await.unwrap();
        let all = format!("{secret:?} {:#?} {text} {text:?}", Some(&secret));
        assert!(!all.contains("hunter2"), "{all}");
        assert_eq!(text.expose(), "hunter2");
    }

    #[tokio::test]
    async fn a_file_is_read_at_each_use_without_its_line_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let secret = Secret::File(file.path().to_owned());
        std::fs::write(file.path(), "one \r\n").unwrap();
        assert_eq!(secret.read().await.unwrap().expose(), "one ");
        std::fs::write(file.path(), "two").unwrap();
        assert_eq!(secret.read().await.unwrap().expose(), "two");
    }

    #[tokio::test]
    async fn a_file_that_is_missing_or_empty_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), " \n").unwrap();
        let path = file.path().display().to_string();
        let empty = Secret::File(file.path().to_owned()).read().await.unwrap_err();
        assert_eq!(empty, SecretError::Empty { path });
        let missing = Secret::File("/nonexistent/token".into()).read().await.unwrap_err().to_string();
        assert!(missing.starts_with("/nonexistent/token cannot be read: "), "{missing}");
    }
}
