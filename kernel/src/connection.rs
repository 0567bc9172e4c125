//! The connection file: where to bind, how to sign and whether to encrypt. Owns the errors a person sees when it is wrong.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jupyter_protocol::{ConnectionInfo, connection_info::Transport};
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::zmtp::{KeyError, KeyPair, Security};

/// What can be wrong with a connection file, in one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    #[error(
        "cannot read the connection file `{path}`: {source}. A Jupyter server passes one with -f; \
         to start by hand use `jupyter console --kernel pytorch-tpu`"
    )]
    Unreadable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(
        "the connection file `{path}` is not a Jupyter connection file: {source}. Let the Jupyter \
         server write it, or copy one from `jupyter --runtime-dir`"
    )]
    Invalid {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error(
        "the connection file `{path}` asks for signature scheme `{scheme}`; this kernel signs with \
         hmac-sha256 only (Jupyter's default: remove `Session.signature_scheme` from the configuration)"
    )]
    Scheme { path: PathBuf, scheme: String },
    #[error(
        "the connection file `{path}` asks for encryption with keys that do not do: {source}. Remove \
         it and let the Jupyter server make new ones, or set `KernelManager.transport_encryption` to \
         \"disabled\""
    )]
    Keys {
        path: PathBuf,
        #[source]
        source: KeyError,
    },
    #[error(
        "the connection file `{path}` holds a `curve_publickey` without its `curve_secretkey`: it is a \
         client's copy; start the kernel from the file that the Jupyter server wrote"
    )]
    NoSecretKey { path: PathBuf },
}

/// The keys of a kernel whose manager has `transport_encryption`, in Z85.
#[derive(Deserialize)]
struct Keys {
    #[serde(default)]
    curve_publickey: Option<String>,
    #[serde(default)]
    curve_secretkey: Option<Zeroizing<String>>,
}

/// A connection file as read.
#[derive(Clone)]
pub struct Connection {
    /// Where it stands; `get_connection_file()` answers this.
    pub path: PathBuf,
    /// Its content.
    pub info: ConnectionInfo,
    /// Whether its sockets encrypt, and with what.
    pub security: Security,
}

impl Connection {
    /// Read and check a connection file.
    pub fn read(path: &Path) -> Result<Self, ConnectionError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConnectionError::Unreadable {
            path: path.into(),
            source,
        })?;
        let text = Zeroizing::new(text);
        let invalid = |source| ConnectionError::Invalid {
            path: path.into(),
            source,
        };
        let info: ConnectionInfo = serde_json::from_str(&text).map_err(invalid)?;
        let keys: Keys = serde_json::from_str(&text).map_err(invalid)?;
        if info.signature_scheme != "hmac-sha256" {
            return Err(ConnectionError::Scheme {
                path: path.into(),
                scheme: info.signature_scheme,
            });
        }
        Ok(Self {
            path: path.into(),
            info,
            security: security(path, &keys)?,
        })
    }

    /// The ZMTP endpoint of one channel.
    pub fn endpoint(&self, port: u16) -> String {
        match self.info.transport {
            Transport::TCP => format!("tcp://{}:{port}", self.info.ip),
            Transport::IPC => format!("ipc://{}-{port}", self.info.ip),
        }
    }
}

/// The file holds the key that signs.
impl fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Connection")
            .field("path", &self.path)
            .field("security", &self.security)
            .finish_non_exhaustive()
    }
}

fn security(path: &Path, keys: &Keys) -> Result<Security, ConnectionError> {
    let Some(secret) = &keys.curve_secretkey else {
        return match keys.curve_publickey {
            None => Ok(Security::Plain),
            Some(_) => Err(ConnectionError::NoSecretKey { path: path.into() }),
        };
    };
    KeyPair::from_z85(secret, keys.curve_publickey.as_deref())
        .map(|pair| Security::Curve(Arc::new(pair)))
        .map_err(|source| ConnectionError::Keys {
            path: path.into(),
            source,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Connection, ConnectionError> {
        let path = std::env::temp_dir().join(format!("connection-{}.json", uuid::Uuid::new_v4()));
        std::fs::write(&path, text).unwrap();
        let read = Connection::read(&path);
        std::fs::remove_file(&path).unwrap();
        read
    }

    const GOOD: &str = r#"{"ip":"127.0.0.1","transport":"tcp","shell_port":1,"iopub_port":2,
        "stdin_port":3,"control_port":4,"hb_port":5,"key":"k","signature_scheme":"hmac-sha256",
        "kernel_name":"pytorch-tpu","jupyter_session":"a.ipynb"}"#;

    #[test]
    fn a_file_written_by_jupyter_client_is_read() {
        let connection = read(GOOD).unwrap();
        assert_eq!(
            connection.endpoint(connection.info.iopub_port),
            "tcp://127.0.0.1:2"
        );
        assert_eq!(connection.info.key, "k");
        assert!(matches!(connection.security, Security::Plain));
    }

    const KEYS: &str = r#""curve_publickey":"Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID",
        "curve_secretkey":"D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs","key":"k""#;

    #[test]
    fn keys_in_the_file_ask_for_encryption_and_are_never_printed() {
        let connection = read(&GOOD.replace(r#""key":"k""#, KEYS)).unwrap();
        assert!(matches!(connection.security, Security::Curve(_)));
        let printed = format!("{connection:?}");
        assert!(printed.contains("Curve(KeyPair { .. })"), "{printed}");
        assert!(!printed.contains("IlAW"), "{printed}");
    }

    #[test]
    fn keys_that_do_not_do_are_not_taken_for_none() {
        for (text, what) in [
            (
                KEYS.replace("D:)Q", "D:)R"),
                "the public key does not belong to the secret key",
            ),
            (
                KEYS.replace("D:)Q", ""),
                "the secret key is not 40 characters of Z85",
            ),
            (
                KEYS.replace("curve_secretkey", "other"),
                "without its `curve_secretkey`",
            ),
        ] {
            let error = read(&GOOD.replace(r#""key":"k""#, &text))
                .unwrap_err()
                .to_string();
            assert!(error.contains(what) && !error.contains('\n'), "{error}");
            assert!(!error.contains("IlAW"), "{error}");
        }
    }

    #[test]
    fn ipc_endpoints_join_path_and_port_with_a_dash() {
        let connection = read(
            &GOOD
                .replace("\"tcp\"", "\"ipc\"")
                .replace("127.0.0.1", "/tmp/k"),
        )
        .unwrap();
        assert_eq!(connection.endpoint(4), "ipc:///tmp/k-4");
    }

    #[test]
    fn each_fault_is_one_line_that_names_the_file() {
        let missing = Connection::read(Path::new("/nonexistent/kernel-1.json"))
            .unwrap_err()
            .to_string();
        assert!(missing.starts_with(
            "cannot read the connection file `/nonexistent/kernel-1.json`: No such file"
        ));
        for text in ["{", "{}", &GOOD.replace("hmac-sha256", "hmac-md5")] {
            let error = read(text).unwrap_err().to_string();
            assert!(!error.contains('\n'), "{error}");
            assert!(error.starts_with("the connection file `/"), "{error}");
        }
    }
}
