//! The connection file: where to bind and how to sign. Owns the errors a person sees when it is wrong.

use std::path::{Path, PathBuf};

use jupyter_protocol::{ConnectionInfo, connection_info::Transport};

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
}

/// A connection file as read.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Where it stands; `get_connection_file()` answers this.
    pub path: PathBuf,
    /// Its content.
    pub info: ConnectionInfo,
}

impl Connection {
    /// Read and check a connection file.
    pub fn read(path: &Path) -> Result<Self, ConnectionError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConnectionError::Unreadable {
            path: path.into(),
            source,
        })?;
        let info: ConnectionInfo =
            serde_json::from_str(&text).map_err(|source| ConnectionError::Invalid {
                path: path.into(),
                source,
            })?;
        if info.signature_scheme != "hmac-sha256" {
            return Err(ConnectionError::Scheme {
                path: path.into(),
                scheme: info.signature_scheme,
            });
        }
        Ok(Self {
            path: path.into(),
            info,
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
