//! The dates of message headers: ISO 8601, UTC, microseconds.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY: u64 = 86_400;

/// The time now, as a header's date.
pub fn now() -> String {
    iso8601(SystemTime::now())
}

/// `time` as `2026-11-30T03:48:10.012345Z`. Times before 1970 are shown as 1970.
fn iso8601(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / DAY, since.as_secs() % DAY);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let micros = since.subsec_micros();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// Year, month and day of a day counted from 1970-01-01.
fn civil(days: u64) -> (u64, u64, u64) {
    // Eras of 400 years, each beginning on a 1 March: then a leap day is the last of its year.
    const ERA: u64 = 146_097;
    let days = days + 719_468;
    let (era, day) = (days / ERA, days % ERA);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_are_right_on_both_sides_of_leap_days() {
        for (seconds, micros, expected) in [
            (0, 0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400, 1, "2000-02-29T00:00:00.000001Z"),
            (951_868_799, 999_999, "2000-02-29T23:59:59.999999Z"),
            (951_868_800, 0, "2000-03-01T00:00:00.000000Z"),
            (1_709_164_800, 0, "2024-02-29T00:00:00.000000Z"),
            (1_735_689_599, 500_000, "2024-12-31T23:59:59.500000Z"),
            (1_796_010_490, 12_345, "2026-11-30T03:48:10.012345Z"),
            (4_107_542_400, 0, "2100-03-01T00:00:00.000000Z"),
        ] {
            let time = UNIX_EPOCH + Duration::new(seconds, micros * 1000);
            assert_eq!(iso8601(time), expected);
        }
    }
}
