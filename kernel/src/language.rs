//! What `kernel_info` says. Answered before Python is up, then with Python's own words.

use std::sync::Mutex;

use serde_json::{Value, json};

use crate::lock::lock;

/// Version of the Jupyter messaging protocol this kernel speaks.
pub const PROTOCOL_VERSION: &str = "5.5";

/// Name and version of the language, as far as known.
#[derive(Debug)]
pub struct Language {
    /// The interpreter's version, known before it runs.
    version: String,
    known: Mutex<Option<(Value, String)>>,
}

impl Language {
    /// Of an interpreter of this version, which is not up yet.
    pub fn new(version: &str) -> Self {
        Self {
            version: version.to_owned(),
            known: Mutex::default(),
        }
    }

    /// Python is up: its full `language_info` and banner.
    pub fn set(&self, language_info: Value, banner: String) {
        *lock(&self.known) = Some((language_info, banner));
    }

    /// Content of `kernel_info_reply`.
    pub fn kernel_info(&self) -> Value {
        let known = lock(&self.known);
        let (language_info, banner) = known.clone().unwrap_or_else(|| {
            let version = &self.version;
            (
                language_info(version),
                format!(
                    "PyTorch (TPU) {} | Python {version}",
                    env!("CARGO_PKG_VERSION")
                ),
            )
        });
        json!({
            "status": "ok",
            "protocol_version": PROTOCOL_VERSION,
            "implementation": "pytorch-tpu",
            "implementation_version": env!("CARGO_PKG_VERSION"),
            "language_info": language_info,
            "banner": banner,
            "debugger": true,
            "supported_features": ["kernel subshells"],
            "help_links": [
                {"text": "PyTorch", "url": "https://docs.pytorch.org/docs/stable/index.html"},
                {"text": "torch.compile", "url": "https://docs.pytorch.org/docs/stable/torch.compiler.html"},
                {"text": "OpenXLA", "url": "https://openxla.org/xla"},
                {"text": "Cloud TPU", "url": "https://cloud.google.com/tpu/docs"},
                {"text": "Python", "url": "https://docs.python.org/3"},
                {"text": "IPython", "url": "https://ipython.org/documentation.html"},
                {"text": "NumPy", "url": "https://numpy.org/doc/stable"},
                {"text": "Matplotlib", "url": "https://matplotlib.org/stable"},
            ],
        })
    }
}

fn language_info(version: &str) -> Value {
    let major = version.split('.').next().unwrap_or("3");
    json!({
        "name": "python",
        "version": version,
        "mimetype": "text/x-python",
        "codemirror_mode": {"name": "ipython", "version": major.parse::<u32>().unwrap_or(3)},
        "pygments_lexer": format!("ipython{major}"),
        "nbconvert_exporter": "python",
        "file_extension": ".py",
    })
}
