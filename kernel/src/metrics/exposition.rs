//! The numbers in the text format of Prometheus, version 0.0.4.

use std::fmt::Write;

use crate::feed::Numbers;
use crate::kernel::Kernel;
use crate::offer;

/// All of it.
pub fn text(kernel: &Kernel) -> String {
    let (numbers, cells, idle) = kernel.feed.numbers();
    let idle = idle.map_or(0.0, |idle| idle.as_secs_f64());
    of(
        &numbers,
        cells,
        idle,
        &offer::notebook().unwrap_or_default(),
    )
}

struct Page(String);

impl Page {
    fn metric(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.labelled(name, kind, help, "", value);
    }

    fn labelled(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        labels: &str,
        value: impl std::fmt::Display,
    ) {
        // Writing to a string does not fail.
        let _ = writeln!(
            self.0,
            "# HELP tpu_kernel_{name} {help}\n# TYPE tpu_kernel_{name} {kind}\ntpu_kernel_{name}{labels} {value}"
        );
    }
}

fn of(numbers: &Numbers, cells: u64, idle: f64, notebook: &str) -> String {
    let mut page = Page(String::with_capacity(4096));
    let device = numbers.device.as_ref();
    let labels = [
        ("notebook", notebook),
        ("device", device.map_or("", |device| &device.name)),
        (
            "emulated",
            device.map_or("", |device| if device.emulated { "true" } else { "false" }),
        ),
        ("runtime", device.map_or("", |device| &device.runtime)),
        ("mode", &numbers.mode),
        ("pid", &std::process::id().to_string()),
    ]
    .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
    .join(",");
    page.labelled(
        "info",
        "gauge",
        "What the kernel is.",
        &format!("{{{labels}}}"),
        1,
    );
    let busy = u8::from(numbers.state == "busy");
    page.metric("busy", "gauge", "1 while a cell runs.", busy);
    page.metric(
        "idle_seconds",
        "gauge",
        "Since when no cell runs; 0 while one does.",
        idle,
    );
    page.metric("cells_total", "counter", "Cells that have ended.", cells);
    count(&mut page, numbers);
    page.0
}

/// What tpu-core counts.
fn count(page: &mut Page, numbers: &Numbers) {
    let c = &numbers.counters;
    let seconds = |ns: u64| ns as f64 / 1e9;
    page.metric(
        "hbm_used_bytes",
        "gauge",
        "Device memory in use.",
        c.hbm_used,
    );
    page.metric(
        "hbm_peak_bytes",
        "gauge",
        "Most device memory in use at once.",
        c.hbm_peak,
    );
    page.metric(
        "hbm_limit_bytes",
        "gauge",
        "Device memory there is.",
        c.hbm_limit,
    );
    let busy = seconds(c.busy_ns);
    page.metric(
        "device_busy_seconds_total",
        "counter",
        "Time the device was busy.",
        busy,
    );
    page.metric(
        "compiles_total",
        "counter",
        "Programs compiled.",
        c.compiles,
    );
    let compile = seconds(c.compile_ns);
    page.metric(
        "compile_seconds_total",
        "counter",
        "Time spent compiling.",
        compile,
    );
    page.metric(
        "cache_hits_total",
        "counter",
        "Programs loaded from a cache.",
        c.cache_hits,
    );
    page.metric(
        "memory_hits_total",
        "counter",
        "Launches that found their program loaded.",
        c.memory_hits,
    );
    page.metric(
        "executions_total",
        "counter",
        "Launches on the device.",
        c.executions,
    );
    page.metric(
        "to_device_bytes_total",
        "counter",
        "Bytes sent to the device.",
        c.to_device_bytes,
    );
    page.metric(
        "from_device_bytes_total",
        "counter",
        "Bytes read from the device.",
        c.from_device_bytes,
    );
    page.metric(
        "failures_total",
        "counter",
        "Failures on the device.",
        numbers.failures,
    );
    page.metric(
        "pending",
        "gauge",
        "Launches and transfers that have not ended.",
        numbers.pending,
    );
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', r"\\")
        .replace('"', "\\\"")
        .replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::Feed;

    #[test]
    fn each_metric_has_its_help_and_type_and_labels_are_escaped() {
        let (numbers, ..) = Feed::default().numbers();
        let text = of(&numbers, 3, 1.5, "/a \"b\"\\c\n.ipynb");
        assert!(
            text.contains(r#"tpu_kernel_info{notebook="/a \"b\"\\c\n.ipynb",device="","#),
            "{text}"
        );
        assert!(text.contains(
            "# HELP tpu_kernel_cells_total Cells that have ended.\n# TYPE tpu_kernel_cells_total counter\ntpu_kernel_cells_total 3\n"
        ));
        assert!(text.contains("\ntpu_kernel_idle_seconds 1.5\n"));
        let lines = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
        assert_eq!(
            (lines("# HELP "), lines("# TYPE "), lines("tpu_kernel_")),
            (17, 17, 17)
        );
    }
}
