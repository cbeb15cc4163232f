//! Traces in mahimahi's format: each line is a millisecond, counted from 1, at which 1500 bytes may leave. After the last
//! one the trace begins again.

use marcato_units::{Bytes, Duration, Rate};

/// What one line of a trace lets out.
const OPPORTUNITY: Bytes = Bytes::new(1500);

/// The mean rate of a trace, or why it is none: with the line, counted from 1.
pub(crate) fn mean_rate(text: &str) -> Result<Rate, String> {
    let (mut many, mut last) = (0u64, 0u64);
    for (number, line) in (1u64..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let at: u64 = line.parse().map_err(|_| format!("line {number} is not a number of milliseconds"))?;
        if at < last {
            return Err(format!("line {number} goes back in time: sort its lines"));
        }
        (many, last) = (many + 1, at);
    }
    if last == 0 {
        return Err("nothing could ever leave: its last line is above 0".to_owned());
    }
    Ok(Rate::from_bytes_over(OPPORTUNITY * many, Duration::from_millis(last)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_each_millisecond_is_twelve_megabits_a_second() {
        assert_eq!(mean_rate("1\n2\n3\n4\n"), Ok(Rate::from_mbps(12)));
        assert_eq!(mean_rate("\n 5\n10 \n10\n"), Ok(Rate::from_bps(3_600_000)));
    }

    #[test]
    fn what_is_no_trace_is_refused() {
        for (text, problem) in [
            ("", "nothing could ever leave: its last line is above 0"),
            ("0\n", "nothing could ever leave: its last line is above 0"),
            ("1\nx\n", "line 2 is not a number of milliseconds"),
            ("2\n1\n", "line 2 goes back in time: sort its lines"),
        ] {
            assert_eq!(mean_rate(text), Err(problem.to_owned()));
        }
    }
}
