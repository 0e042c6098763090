//! A password, token or key: never printed, and read from its file at each use, so that a rotation needs no restart.

use std::path::{Path, PathBuf};
use std::{fmt, io};

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
    /// The secret from settings: a value or a file, not both; `None` when there is neither. The file has to have a secret in it now.
    pub fn given(value: Option<String>, file: Option<PathBuf>) -> Result<Option<Self>, String> {
        match (value.filter(|value| !value.trim().is_empty()), file) {
            (Some(_), Some(_)) => Err("give the value or the file, not both".to_owned()),
            (Some(value), None) => Ok(Some(Self::Value(value))),
            (None, Some(file)) => {
                let text = std::fs::read_to_string(&file);
                text_of(&file, text).map(|_| Some(Self::File(file))).map_err(|error| error.to_string())
            }
            (None, None) => Ok(None),
        }
    }

    /// The secret as it is now. Line ends at the end of a file do not count.
    pub async fn read(&self) -> Result<SecretText, SecretError> {
        let path = match self {
            Self::Value(value) => return Ok(SecretText(value.clone())),
            Self::File(path) => path,
        };
        text_of(path, tokio::fs::read_to_string(path).await)
    }
}

fn text_of(path: &Path, text: io::Result<String>) -> Result<SecretText, SecretError> {
    let path = path.display().to_string();
    match text {
        Err(error) => Err(SecretError::Unreadable { path, why: error.to_string() }),
        Ok(text) if text.trim().is_empty() => Err(SecretError::Empty { path }),
        Ok(text) => Ok(SecretText(text.trim_end_matches(['\r', '\n']).to_owned())),
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

    #[test]
    fn a_secret_is_given_as_a_value_or_as_a_file_that_has_one() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = || Some(file.path().to_owned());
        assert_eq!(Secret::given(Some("a".into()), None), Ok(Some(Secret::Value("a".into()))));
        assert_eq!(Secret::given(Some(" ".into()), None), Ok(None));
        assert_eq!(Secret::given(None, None), Ok(None));
        assert!(Secret::given(Some("a".into()), path()).unwrap_err().contains("not both"));
        assert!(Secret::given(None, path()).unwrap_err().contains("is empty"));
        std::fs::write(file.path(), "s3cret").unwrap();
        assert_eq!(Secret::given(None, path()), Ok(Some(Secret::File(file.path().to_owned()))));
        let missing = Secret::given(None, Some("/nonexistent/token".into())).unwrap_err();
        assert!(missing.starts_with("/nonexistent/token cannot be read: "), "{missing}");
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
