//! Dates as Python's `strftime` writes them.

use std::time::{SystemTime, UNIX_EPOCH};

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A time in UTC.
struct Time {
    year: i64,
    /// From 0.
    month: usize,
    day: i64,
    /// The day of the year, from 1.
    day_of_year: i64,
    /// From Sunday.
    weekday: usize,
    /// Seconds of the day.
    seconds: i64,
    micros: u32,
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// The first day of a year, in days after that of 1970.
fn first_day(year: i64) -> i64 {
    let before = year - 1;
    365 * (year - 1970) + (before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400)) - (492 - 19 + 4)
}

impl Time {
    fn of(time: SystemTime) -> Time {
        let (seconds, micros) = match time.duration_since(UNIX_EPOCH) {
            Ok(after) => (after.as_secs() as i64, after.subsec_micros()),
            Err(before) => (-(before.duration().as_secs_f64().ceil() as i64), 0),
        };
        let (days, seconds) = (seconds.div_euclid(86400), seconds.rem_euclid(86400));
        // The mean year has 365.2425 days: at most one off.
        let mut year = 1970 + (days as f64 / 365.2425).floor() as i64;
        while first_day(year) > days {
            year -= 1;
        }
        while first_day(year + 1) <= days {
            year += 1;
        }
        let day_of_year = days - first_day(year);
        let (mut month, mut day) = (0, day_of_year);
        let lengths = [31, if is_leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        while month < 11 && day >= lengths[month] {
            day -= lengths[month];
            month += 1;
        }
        let weekday = (days + 4).rem_euclid(7) as usize;
        Time { year, month, day: day + 1, day_of_year: day_of_year + 1, weekday, seconds, micros }
    }
}

/// A time in a format of `strftime`, with the names of the C locale. Unknown directives are an error.
pub(super) fn strftime(time: SystemTime, format: &str) -> Result<String, String> {
    let time = Time::of(time);
    let (hour, minute, second) = (time.seconds / 3600, time.seconds / 60 % 60, time.seconds % 60);
    let (day, month) = (DAYS[time.weekday], MONTHS[time.month]);
    let twelve = if hour % 12 == 0 { 12 } else { hour % 12 };
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let directive = chars.next();
        // Without zeros at the start.
        let (is_short, directive) = if directive == Some('-') { (true, chars.next()) } else { (false, directive) };
        let two = |number: i64| if is_short { number.to_string() } else { format!("{number:02}") };
        out.push_str(&match directive {
            Some('Y') => time.year.to_string(),
            Some('y') => two(time.year.rem_euclid(100)),
            Some('m') => two(time.month as i64 + 1),
            Some('d') => two(time.day),
            Some('e') => format!("{:2}", time.day),
            Some('j') => {
                if is_short {
                    time.day_of_year.to_string()
                } else {
                    format!("{:03}", time.day_of_year)
                }
            }
            Some('H') => two(hour),
            Some('I') => two(twelve),
            Some('M') => two(minute),
            Some('S') => two(second),
            Some('f') => format!("{:06}", time.micros),
            Some('p') => (if hour < 12 { "AM" } else { "PM" }).to_string(),
            Some('A') => day.to_string(),
            Some('a') => day[..3].to_string(),
            Some('B') => month.to_string(),
            Some('b' | 'h') => month[..3].to_string(),
            Some('u') => (if time.weekday == 0 { 7 } else { time.weekday }).to_string(),
            Some('w') => time.weekday.to_string(),
            Some('F') => format!("{}-{:02}-{:02}", time.year, time.month + 1, time.day),
            Some('T') => format!("{hour:02}:{minute:02}:{second:02}"),
            Some('R') => format!("{hour:02}:{minute:02}"),
            Some('D') => format!("{:02}/{:02}/{:02}", time.month + 1, time.day, time.year.rem_euclid(100)),
            Some('c') => {
                format!("{} {} {:2} {hour:02}:{minute:02}:{second:02} {}", &day[..3], &month[..3], time.day, time.year)
            }
            Some('Z') => "UTC".to_string(),
            Some('z') => "+0000".to_string(),
            Some('n') => "\n".to_string(),
            Some('t') => "\t".to_string(),
            Some('%') => "%".to_string(),
            other => {
                let other = other.map(String::from).unwrap_or_default();
                return Err(format!("strftime_now must get a known format, got %{other}"));
            }
        });
    }
    Ok(out)
}
