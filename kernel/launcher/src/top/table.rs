//! The table a person reads: one line for each kernel, as wide as the terminal.

use std::path::Path;

use super::kernels::Kernel;

const HEAD: [&str; 9] = [
    "PID", "STATE", "CHIP", "HBM", "BUSY", "CPU", "MEMORY", "NOTEBOOK", "NOW",
];

/// Lines, each with its newline.
pub fn draw(kernels: &[Kernel], before: &[Kernel], width: usize) -> String {
    if kernels.is_empty() {
        return "no kernel of yours runs on this machine\n".to_owned();
    }
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(kernels.iter().map(|kernel| row(kernel, before)));
    let mut text = String::new();
    let widths: Vec<usize> = (0..HEAD.len())
        .map(|column| {
            rows.iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    for row in &rows {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        text.extend(line.trim_end().chars().take(width));
        text.push('\n');
    }
    text
}

fn row(kernel: &Kernel, before: &[Kernel]) -> [String; 9] {
    let told = &kernel.told;
    let chip = told["device"]["name"].as_str().map_or_else(
        || "-".to_owned(),
        |name| {
            let emulated = told["device"]["emulated"] == true;
            format!(
                "{}{}",
                plain(name),
                if emulated { " (emulated)" } else { "" }
            )
        },
    );
    let (used, limit) = (kernel.number("hbm_used"), kernel.number("hbm_limit"));
    let memory = if limit > 0.0 {
        format!("{}/{}", size(used), size(limit))
    } else {
        "-".to_owned()
    };
    let notebook = told["notebook"].as_str().map_or("-", |path| {
        let name = Path::new(path).file_name().and_then(|name| name.to_str());
        name.unwrap_or(path)
    });
    [
        kernel.pid.to_string(),
        state(kernel),
        chip,
        memory,
        format!("{:.0}%", kernel.busy(before)),
        format!("{:.0}%", kernel.processor(before)),
        size(kernel.memory as f64),
        plain(notebook),
        now(kernel),
    ]
}

/// `busy [12] 8 s`, or `idle 3 min`.
fn state(kernel: &Kernel) -> String {
    let told = &kernel.told;
    let word = told["state"].as_str().unwrap_or("?");
    let cell = &told["cell"];
    if let (Some(count), Some(started)) = (cell["count"].as_i64(), cell["started"].as_f64()) {
        return format!(
            "{word} [{count}] {}",
            duration(kernel.number("t") - started)
        );
    }
    match told["idle_seconds"].as_f64() {
        Some(seconds) if word == "idle" => format!("{word} {}", duration(seconds)),
        _ => plain(word),
    }
}

/// What goes on, the longest first.
fn now(kernel: &Kernel) -> String {
    let Some(work) = kernel.told["now"].get(0) else {
        return String::new();
    };
    let seconds = duration(work["elapsed_ns"].as_f64().unwrap_or(0.0) / 1e9);
    let what = match work["kind"].as_str() {
        Some("transfer") => format!(
            "transfer of {}",
            size(work["bytes"].as_f64().unwrap_or(0.0))
        ),
        kind => format!(
            "{} {}",
            kind.unwrap_or(""),
            work["name"].as_str().unwrap_or("")
        ),
    };
    plain(&format!("{} {seconds}", what.trim_end()))
}

/// What a notebook is called steers no terminal.
fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

fn size(bytes: f64) -> String {
    let mut value = bytes;
    for unit in ["B", "KiB", "MiB"] {
        if value < 1000.0 {
            return format!("{value:.0}{unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.1}GiB")
}

fn duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0);
    if seconds < 100.0 {
        format!("{seconds:.0} s")
    } else if seconds < 6000.0 {
        format!("{:.0} min", seconds / 60.0)
    } else {
        format!("{:.1} h", seconds / 3600.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::kernels::example;
    use super::*;

    #[test]
    fn a_line_says_which_notebook_does_what() {
        let told = |busy_ns: u64, t: f64| {
            json!({"state": "busy", "cell": {"id": "x", "count": 12, "started": 100.0}, "t": t,
                "device": {"name": "TPU v5e", "emulated": true}, "hbm_used": 1 << 30, "hbm_limit": 16_909_336_064_u64,
                "busy_ns": busy_ns, "notebook": "/home/ada/train\u{1b}[2J.ipynb", "idle_seconds": null,
                "now": [{"kind": "compile", "name": "tt_jit_mm", "elapsed_ns": 2_100_000_000_u64}]})
        };
        let before = [example(7, told(0, 106.0))];
        let now = [
            example(7, told(500_000_000, 108.0)),
            example(
                99,
                json!({"state": "idle", "idle_seconds": 7200, "now": []}),
            ),
        ];
        let text = draw(&now, &before, 200);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "PID  STATE          CHIP                HBM             BUSY  CPU  MEMORY  NOTEBOOK         NOW",
                "7    busy [12] 8 s  TPU v5e (emulated)  1.0GiB/15.7GiB  25%   0%   1.5GiB  train?[2J.ipynb  compile tt_jit_mm 2 s",
                "99   idle 2.0 h     -                   -               0%    0%   1.5GiB  -",
            ]
        );
        assert_eq!(draw(&now, &before, 10).lines().next(), Some("PID  STATE"));
        assert_eq!(
            draw(&[], &[], 80),
            "no kernel of yours runs on this machine\n"
        );
    }

    #[test]
    fn sizes_and_times_are_short() {
        assert_eq!(
            [0.0, 999.0, 5e5, 6e8, 3.3e10].map(size),
            ["0B", "999B", "488KiB", "572MiB", "30.7GiB"]
        );
        assert_eq!(
            [0.4, 99.0, 600.0, 7200.0].map(duration),
            ["0 s", "99 s", "10 min", "2.0 h"]
        );
    }
}
