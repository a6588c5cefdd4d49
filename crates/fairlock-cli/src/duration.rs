//! Durations as people type them: `500ms`, `2s`, `5m`, `1h`, or bare seconds with fractions.

use std::time::Duration;

/// Reads a duration.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return Err(EXAMPLES.to_owned()),
    };
    let number: f64 = number.parse().map_err(|_| EXAMPLES.to_owned())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| "that is too long".to_owned())
}

/// How long something takes, for people: `0.4 s`, `12 s`, `2 m 5 s`, `3 h 10 m`.
pub(crate) fn spell(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{:.1} s", duration.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        60..3_600 => format!("{} m {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} m", seconds / 3_600, seconds / 60 % 60),
    }
}

const EXAMPLES: &str = "write it like 500ms, 2s, 5m, 1h or 1.5 (seconds)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_fractions_are_read() {
        let ms = |text: &str| parse(text).map(|duration| duration.as_millis());
        assert_eq!(ms("500ms"), Ok(500));
        assert_eq!(ms("2s"), Ok(2_000));
        assert_eq!(ms("5m"), Ok(300_000));
        assert_eq!(ms("1h"), Ok(3_600_000));
        assert_eq!(ms("1.5"), Ok(1_500));
        assert_eq!(ms("0"), Ok(0));
        assert_eq!(ms(".5"), Ok(500));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "s", "-1", "1 s", "1x", "1.2.3", "ms", "inf", "nan", "1e3"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        assert!(parse("99999999999999999999999h").is_err());
    }

    #[test]
    fn people_get_round_figures() {
        let spelled = |ms| spell(Duration::from_millis(ms));
        assert_eq!(spelled(440), "0.4 s");
        assert_eq!(spelled(12_900), "12 s");
        assert_eq!(spelled(125_000), "2 m 5 s");
        assert_eq!(spelled(11_400_000), "3 h 10 m");
    }
}
