//! Which comms ask for the state of all widgets: a page that was reloaded opens one.
//!
//! They are answered beside the running cell, so that bars and sliders are back while it runs;
//! every other comm has its turn after the cell, in order.

use std::collections::VecDeque;
use std::sync::Mutex;

use serde::Deserialize;

use crate::lock::lock;

/// The target ipywidgets answers.
const TARGET: &str = "jupyter.widget.control";
/// Pages that went away without a word leave their comm open.
const KEPT: usize = 64;

#[derive(Deserialize)]
struct Content {
    comm_id: String,
    #[serde(default)]
    target_name: Option<String>,
}

/// The open ones, the newest first.
#[derive(Debug, Default)]
pub struct WidgetControl {
    open: Mutex<VecDeque<String>>,
}

impl WidgetControl {
    /// True when a `comm_open`, `comm_msg` or `comm_close` belongs to such a comm.
    pub fn takes(&self, msg_type: &str, content: &[u8]) -> bool {
        let mut open = lock(&self.open);
        if open.is_empty() && msg_type != "comm_open" {
            return false;
        }
        let Ok(content) = serde_json::from_slice::<Content>(content) else {
            return false;
        };
        if msg_type == "comm_open" {
            let ours = content.target_name.as_deref() == Some(TARGET);
            if ours {
                open.truncate(KEPT - 1);
                open.push_front(content.comm_id);
            }
            return ours;
        }
        let Some(index) = open.iter().position(|id| *id == content.comm_id) else {
            return false;
        };
        if msg_type == "comm_close" {
            open.remove(index);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_comms_opened_for_the_state_of_widgets_are_taken() {
        let control = WidgetControl::default();
        let message = br#"{"comm_id":"a","data":{"method":"request_states"}}"#;
        assert!(!control.takes("comm_msg", message));
        assert!(!control.takes(
            "comm_open",
            br#"{"comm_id":"b","target_name":"jupyter.widget"}"#
        ));
        assert!(control.takes(
            "comm_open",
            br#"{"comm_id":"a","target_name":"jupyter.widget.control","data":{}}"#
        ));
        assert!(control.takes("comm_msg", message));
        assert!(!control.takes("comm_msg", br#"{"comm_id":"b","data":{"x":"\ud800"}}"#));
        assert!(control.takes("comm_close", br#"{"comm_id":"a"}"#));
        assert!(!control.takes("comm_msg", message));
    }

    #[test]
    fn pages_that_went_away_are_forgotten() {
        let control = WidgetControl::default();
        for page in 0..1000 {
            let open = format!(r#"{{"comm_id":"{page}","target_name":"{TARGET}"}}"#);
            assert!(control.takes("comm_open", open.as_bytes()));
        }
        assert!(!control.takes("comm_msg", br#"{"comm_id":"935"}"#));
        assert!(control.takes("comm_msg", br#"{"comm_id":"936"}"#));
        assert!(control.takes("comm_msg", br#"{"comm_id":"999"}"#));
    }
}
