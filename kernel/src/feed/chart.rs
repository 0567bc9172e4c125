//! HBM and busy over time, as columns of a text, and as a picture.

use crate::picture::{self, PictureError};

/// Numbers at one moment of a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Since the beginning.
    pub seconds: f64,
    pub hbm: u64,
    pub busy_ns: u64,
}

const WIDTH: usize = 600;
const STRIP: usize = 60;
const GAP: usize = 6;
/// White, a line, HBM, busy: readable on both themes, since the ground comes along.
const GROUND: [u8; 3] = [255, 255, 255];
const LINE: [u8; 3] = [158, 158, 158];
const HBM: [u8; 3] = [25, 118, 210];
const BUSY: [u8; 3] = [230, 81, 0];

/// Shares from 0 to 1 for each of `count` equal spans: the most HBM in it, of the most there was; and how
/// busy the device was.
pub fn columns(points: &[Point], count: usize) -> (Vec<f64>, Vec<f64>) {
    let whole = most(points).max(1) as f64;
    let end = points.last().map_or(0.0, |point| point.seconds);
    let (mut hbm, mut busy) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for column in 0..count {
        let from = end * column as f64 / count as f64;
        let to = end * (column + 1) as f64 / count as f64;
        let inside = points
            .iter()
            .filter(|point| point.seconds > from && point.seconds <= to);
        let highest = inside.map(|point| point.hbm).max();
        let used = highest.unwrap_or_else(|| at(points, to).0 as u64);
        hbm.push((used as f64 / whole).clamp(0.0, 1.0));
        let worked = (at(points, to).1 - at(points, from).1) / 1e9;
        busy.push(if to > from {
            (worked / (to - from)).clamp(0.0, 1.0)
        } else {
            0.0
        });
    }
    (hbm, busy)
}

/// The most HBM there was.
pub fn most(points: &[Point]) -> u64 {
    points.iter().map(|point| point.hbm).max().unwrap_or(0)
}

/// HBM and busy time at a moment, between two points as if it had changed evenly.
fn at(points: &[Point], seconds: f64) -> (f64, f64) {
    let after = points.partition_point(|point| point.seconds < seconds);
    let (Some(first), Some(last)) = (
        points.get(after.saturating_sub(1)),
        points.get(after).or(points.last()),
    ) else {
        return (0.0, 0.0);
    };
    let span = last.seconds - first.seconds;
    let share = if span > 0.0 {
        (seconds - first.seconds) / span
    } else {
        0.0
    };
    let between = |from: u64, to: u64| from as f64 + (to as f64 - from as f64) * share;
    (
        between(first.hbm, last.hbm),
        between(first.busy_ns, last.busy_ns),
    )
}

/// A column of text for each share.
pub fn blocks(shares: &[f64]) -> String {
    const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    shares
        .iter()
        .map(|share| BLOCKS[(share * 8.0).round() as usize])
        .collect()
}

/// A PNG: HBM above, busy below.
pub fn picture(points: &[Point]) -> Result<Vec<u8>, PictureError> {
    let (hbm, busy) = columns(points, WIDTH);
    let height = 2 * STRIP + GAP;
    let mut pixels = GROUND.repeat(WIDTH * height);
    for (top, shares, colour) in [(0, hbm, HBM), (STRIP + GAP, busy, BUSY)] {
        for (column, share) in shares.iter().enumerate() {
            let filled = (share * (STRIP - 1) as f64).round() as usize;
            for row in 0..STRIP {
                let colour = match row {
                    0 => LINE,
                    row if row <= filled => colour,
                    _ => continue,
                };
                let place = ((top + STRIP - 1 - row) * WIDTH + column) * 3;
                pixels[place..place + 3].copy_from_slice(&colour);
            }
        }
    }
    picture::png(&pixels, WIDTH as u32, height as u32, 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(seconds: f64, hbm: u64, busy_ns: u64) -> Point {
        Point {
            seconds,
            hbm,
            busy_ns,
        }
    }

    #[test]
    fn columns_are_even_spans_of_time() {
        let points = [
            point(0.0, 0, 0),
            point(1.0, 50, 1_000_000_000),
            point(4.0, 100, 1_000_000_000),
        ];
        let (hbm, busy) = columns(&points, 4);
        assert_eq!(busy, [1.0, 0.0, 0.0, 0.0]);
        assert_eq!(
            hbm.iter()
                .map(|share| (share * 100.0).round())
                .collect::<Vec<_>>(),
            [50.0, 66.0, 83.0, 100.0]
        );
        assert_eq!(blocks(&[0.0, 0.5, 1.0]), " ▄█");
        assert_eq!(columns(&[], 2), (vec![0.0, 0.0], vec![0.0, 0.0]));
    }

    #[test]
    fn the_picture_has_hbm_above_and_busy_below() {
        let points = [point(0.0, 100, 0), point(1.0, 100, 0)];
        let image = image::load_from_memory(&picture(&points).unwrap())
            .unwrap()
            .to_rgb8();
        assert_eq!(image.dimensions(), (600, 126));
        assert_eq!(image.get_pixel(300, 10).0, HBM);
        assert_eq!(image.get_pixel(300, 100).0, GROUND);
        assert_eq!(image.get_pixel(300, 125).0, LINE);
    }
}
