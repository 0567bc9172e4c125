//! `%tpu_stats --live`: one display under a cell, brought up to date from the io thread while the cell
//! runs, and left as a picture when it has ended.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use serde_json::json;

use super::chart::{self, Point};
use super::numbers::{Counters, Numbers};
use crate::outbox::{Entry, Publication};
use crate::parent::Parent;
use crate::wire::EMPTY_OBJECT;

/// Between two updates of the display.
const UPDATE: Duration = Duration::from_millis(500);
/// Points that are kept; with more, every other one goes.
const MOST_POINTS: usize = 240;
/// Columns of the chart in the display.
const COLUMNS: usize = 60;

/// The display of one cell.
#[derive(Debug)]
pub struct Live {
    pub parent: Arc<Parent>,
    began: Instant,
    /// What had been counted when it began.
    first: Counters,
    points: Vec<Point>,
    /// Between two points.
    spacing: Duration,
    taken: Option<Instant>,
    shown: Option<Instant>,
    /// What it said last.
    said: String,
}

impl Live {
    pub fn new(parent: Arc<Parent>, now: &Numbers) -> Self {
        let mut live = Self {
            parent,
            began: Instant::now(),
            first: now.counters,
            points: Vec::new(),
            spacing: Duration::from_millis(100),
            taken: None,
            shown: None,
            said: String::new(),
        };
        live.take(now);
        live
    }

    /// Keep the numbers of now for the chart.
    pub fn take(&mut self, now: &Numbers) {
        if self
            .taken
            .is_some_and(|taken| taken.elapsed() < self.spacing)
        {
            return;
        }
        self.point(now);
    }

    fn point(&mut self, now: &Numbers) {
        self.taken = Some(Instant::now());
        self.points.push(Point {
            seconds: self.began.elapsed().as_secs_f64(),
            hbm: now.counters.hbm_used,
            busy_ns: now.counters.busy_ns,
        });
        if self.points.len() > MOST_POINTS {
            let mut number = 0;
            self.points.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.spacing *= 2;
        }
    }

    /// The display as it is to be shown now, if it is time.
    pub fn update(&mut self, now: &Numbers) -> Option<Entry> {
        let first = self.shown.is_none();
        if self.shown.is_some_and(|shown| shown.elapsed() < UPDATE) {
            return None;
        }
        self.shown = Some(Instant::now());
        let words = self.words(now, false);
        if words == self.said {
            return None;
        }
        self.said = words;
        Some(self.entry(now, first, false))
    }

    /// What stays when the cell has ended.
    pub fn end(mut self, now: &Numbers) -> Entry {
        self.point(now);
        self.entry(now, self.shown.is_none(), true)
    }

    fn entry(&self, now: &Numbers, first: bool, last: bool) -> Entry {
        let words = self.words(now, last);
        let (hbm, busy) = chart::columns(&self.points, COLUMNS);
        let text = format!(
            "{}\n  HBM  {}  up to {}\n  busy {}",
            words.replace('\n', "\n  "),
            chart::blocks(&hbm),
            size(chart::most(&self.points)),
            chart::blocks(&busy)
        );
        let html = format!(
            "<div style=\"font:13px/1.45 var(--jp-ui-font-family,system-ui,sans-serif);max-width:700px\"><div>{}</div>{}{}</div>",
            escaped(&words.replace('\n', " · ")),
            strip(
                &format!("HBM, up to {}", size(chart::most(&self.points))),
                &hbm,
                "#27c"
            ),
            strip("busy", &busy, "#e50"),
        );
        let mut data = json!({"text/plain": text, "text/html": html});
        if last && let Ok(png) = chart::picture(&self.points) {
            data["image/png"] = BASE64.encode(&png).into();
        }
        let content = json!({
            "data": data,
            "metadata": {},
            "transient": {"display_id": format!("tpu-live-{}", self.parent.msg_id)},
        });
        Entry::Publish(Publication {
            msg_type: if first {
                "display_data"
            } else {
                "update_display_data"
            }
            .into(),
            parent: self.parent.header.clone(),
            metadata: EMPTY_OBJECT,
            content: content.to_string().into(),
            buffers: Vec::new(),
        })
    }

    /// The device now, and in a second line what it did since.
    fn words(&self, now: &Numbers, last: bool) -> String {
        let Some(device) = &now.device else {
            return "no device is in use yet".to_owned();
        };
        let (c, first) = (&now.counters, &self.first);
        let span = self.began.elapsed().as_secs_f64();
        let busy = (c.busy_ns.saturating_sub(first.busy_ns)) as f64 / 1e9;
        let percent = if span > 0.0 {
            (busy / span * 100.0).min(100.0)
        } else {
            0.0
        };
        let kind = if device.emulated { " (emulated)" } else { "" };
        let words = format!(
            "{}{kind} · {span:.1} s · HBM {} of {}, peak {} · busy {percent:.0} %",
            device.name,
            size(c.hbm_used),
            size(c.hbm_limit),
            size(c.hbm_peak),
        );
        let mut did = Vec::new();
        let since = |now: u64, then: u64| now.saturating_sub(then);
        let compiles = since(c.compiles, first.compiles);
        if compiles > 0 {
            let seconds = since(c.compile_ns, first.compile_ns) as f64 / 1e9;
            did.push(format!("{compiles} compiled in {seconds:.1} s"));
        }
        let executions = since(c.executions, first.executions);
        did.push(format!("{executions} executions"));
        if !last && let Some(work) = now.now.first() {
            let seconds = work["elapsed_ns"].as_f64().unwrap_or(0.0) / 1e9;
            let kind = work["kind"].as_str().unwrap_or("");
            let name = work["name"].as_str().unwrap_or("");
            let gap = if name.is_empty() { "" } else { " " };
            did.push(format!("now: {kind}{gap}{name} {seconds:.1} s"));
        }
        format!("{words}\n{}", did.join(" · "))
    }
}

fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB"] {
        if value < 1000.0 {
            return format!("{value:.0} {unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.1} GiB")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// One line of the chart: columns without a script. They are many, and kept in the notebook: a colour of a few
/// letters, which is seen on light and on dark.
fn strip(name: &str, columns: &[f64], colour: &str) -> String {
    let mut bars = String::new();
    for share in columns {
        let height = share * 100.0;
        // Writing to a string does not fail.
        let _ = write!(
            bars,
            "<i style=\"height:{height:.0}%;background:{colour}\"></i>"
        );
    }
    let last = columns.last().copied().unwrap_or(0.0) * 100.0;
    format!(
        "<div style=\"display:flex;align-items:flex-end;height:36px;margin-top:6px;border-bottom:1px solid rgba(128,128,128,.4)\" role=\"img\" aria-label=\"{name} over time, now {last:.0} % of the height\"><small style=\"width:90px\">{name}</small><div style=\"flex:1;height:100%;display:grid;grid-auto-flow:column;grid-auto-columns:1fr;gap:1px;align-items:end\">{bars}</div></div>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::{Feed, test_parent};

    #[test]
    fn one_display_is_shown_brought_up_to_date_and_left_with_a_picture() {
        let (mut now, ..) = Feed::default().numbers();
        now.device = Some(crate::feed::numbers::Device {
            name: "TPU <v5e>".into(),
            emulated: true,
            runtime: "XLA CPU plug-in".into(),
            note: None,
        });
        now.counters.hbm_limit = 16 << 30;
        let mut live = Live::new(test_parent("m", "c"), &now);
        let content = |entry: Entry| {
            let Entry::Publish(message) = entry else {
                panic!("no message")
            };
            let content: serde_json::Value = serde_json::from_slice(&message.content).unwrap();
            assert_eq!(content["transient"]["display_id"], "tpu-live-m");
            (message.msg_type, content)
        };
        let (kind, shown) = content(live.update(&now).unwrap());
        assert_eq!(kind, "display_data");
        assert!(shown["data"].get("image/png").is_none());
        assert!(live.update(&now).is_none());
        now.counters.hbm_used = 8 << 30;
        now.counters.executions = 3;
        now.counters.compiles = 1;
        let (kind, left) = content(live.end(&now));
        assert_eq!(kind, "update_display_data");
        let text = left["data"]["text/plain"].as_str().unwrap();
        assert!(text.contains("HBM 8.0 GiB of 16.0 GiB"), "{text}");
        assert!(
            text.contains("\n  1 compiled in 0.0 s · 3 executions\n"),
            "{text}"
        );
        assert!(
            text.lines().nth(2).unwrap().ends_with("█  up to 8.0 GiB"),
            "{text}"
        );
        let html = left["data"]["text/html"].as_str().unwrap();
        assert!(html.contains("TPU &lt;v5e&gt; (emulated)"), "{html}");
        assert!(html.len() <= 6144, "{}", html.len());
        let png = BASE64
            .decode(left["data"]["image/png"].as_str().unwrap().as_bytes())
            .unwrap();
        assert_eq!(&png[1..4], b"PNG");
    }
}
