//! Retransmission timer. RFC 6298.

use marcato_units::Duration;

/// Smoothed round-trip time by RFC 6298, and the retransmission timeout that follows from it.
#[derive(Clone, Debug)]
pub(crate) struct RtoEstimator {
    srtt: Option<Duration>,
    rttvar: Duration,
    rto: Duration,
    backoff: u32,
    min_rto: Duration,
    max_rto: Duration,
    /// Minimum beyond the smoothed round trip.
    margin: Duration,
}

/// Clock granularity G of RFC 6298 §2. Virtual time has nanoseconds; Linux counts in jiffies.
const G: Duration = Duration::from_millis(1);

impl RtoEstimator {
    /// Estimator whose timeout is `initial` until the first measurement. RFC 6298 §2.1.
    pub(crate) fn new(initial: Duration, min_rto: Duration, max_rto: Duration) -> Self {
        let rto = initial.clamp(min_rto, max_rto);
        Self { srtt: None, rttvar: Duration::ZERO, rto, backoff: 0, min_rto, max_rto, margin: G }
    }

    /// Returns this estimator with timeouts that exceed the smoothed round trip by `margin` at least.
    /// Linux bounds the term of the variance by 200 ms, where RFC 6298 bounds the sum.
    pub(crate) fn with_margin(self, margin: Duration) -> Self {
        Self { margin: margin.max(G), ..self }
    }

    /// Adds a measurement R of a segment that was sent once (Karn's rule, RFC 6298 §3).
    pub(crate) fn sample(&mut self, r: Duration) {
        match self.srtt {
            // RFC 6298 §2.2: the first measurement.
            None => {
                self.srtt = Some(r);
                self.rttvar = r / 2;
            }
            // RFC 6298 §2.3: alpha = 1/8, beta = 1/4; RTTVAR is updated first.
            Some(srtt) => {
                self.rttvar = self.rttvar * 3 / 4 + srtt.abs_diff(r) / 4;
                self.srtt = Some(srtt * 7 / 8 + r / 8);
            }
        }
        let srtt = self.srtt.unwrap_or(r);
        self.rto = (srtt + self.margin.max(self.rttvar * 4)).clamp(self.min_rto, self.max_rto);
        // RFC 6298 §5.7: a new measurement ends the back-off.
        self.backoff = 0;
    }

    /// Raises the timeout until the first measurement.
    pub(crate) fn raise(&mut self, least: Duration) {
        if self.srtt.is_none() {
            self.rto = self.rto.max(least).min(self.max_rto);
        }
    }

    /// Ends the back-off without a measurement.
    pub(crate) fn end_back_off(&mut self) {
        self.backoff = 0;
    }

    /// Doubles the timeout after the timer expired. RFC 6298 §5.5.
    pub(crate) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(16);
    }

    /// Returns the current timeout.
    pub(crate) fn rto(&self) -> Duration {
        self.rto.saturating_mul(1 << self.backoff).min(self.max_rto)
    }

    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.srtt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_margin_is_beyond_the_round_trip() {
        let mut rto = RtoEstimator::new(ms(1000), ms(200), ms(60_000)).with_margin(ms(200));
        (0..50).for_each(|_| rto.sample(ms(120)));
        assert_eq!(rto.rto(), ms(320));
    }

    #[test]
    fn the_timeout_is_the_initial_one_before_the_first_measurement() {
        assert_eq!(RtoEstimator::new(ms(1000), ms(200), ms(60_000)).rto(), ms(1000));
        assert_eq!(RtoEstimator::new(ms(3000), ms(200), ms(60_000)).rto(), ms(3000));
        assert_eq!(RtoEstimator::new(ms(100), ms(200), ms(60_000)).rto(), ms(200));
    }

    #[test]
    fn measurements_follow_the_table_of_rfc_6298() {
        let mut rto = RtoEstimator::new(ms(1000), ms(200), ms(60_000));
        // R = 100: SRTT 100, RTTVAR 50, RTO 300.
        rto.sample(ms(100));
        assert_eq!((rto.srtt(), rto.rttvar, rto.rto()), (Some(ms(100)), ms(50), ms(300)));
        // R' = 180: RTTVAR 3/4·50 + 1/4·80 = 57.5, SRTT 110, RTO 340.
        rto.sample(ms(180));
        assert_eq!(rto.srtt(), Some(ms(110)));
        assert_eq!(rto.rttvar, Duration::from_micros(57_500));
        assert_eq!(rto.rto(), ms(340));
    }

    #[test]
    fn a_steady_path_rests_on_the_minimum() {
        let mut linux = RtoEstimator::new(ms(1000), ms(200), ms(60_000));
        let mut standard = RtoEstimator::new(ms(1000), ms(1000), ms(60_000));
        for _ in 0..100 {
            linux.sample(ms(20));
            standard.sample(ms(20));
        }
        assert_eq!(linux.rto(), ms(200));
        assert_eq!(standard.rto(), ms(1000));
    }

    #[test]
    fn each_expiry_doubles_the_timeout_up_to_its_maximum() {
        let mut rto = RtoEstimator::new(ms(1000), ms(200), ms(3000));
        let mut seen = vec![rto.rto()];
        for _ in 0..3 {
            rto.back_off();
            seen.push(rto.rto());
        }
        assert_eq!(seen, [ms(1000), ms(2000), ms(3000), ms(3000)]);
        rto.sample(ms(100));
        assert_eq!(rto.rto(), ms(300));
    }
}
