//! Proportional rate reduction with its two reduction bounds. RFC 6937.

/// State of one recovery under proportional rate reduction. All quantities are bytes, named as in
/// RFC 6937 §3.
#[derive(Clone, Debug)]
pub(crate) struct Prr {
    prr_delivered: u64,
    prr_out: u64,
    recover_fs: u64,
}

impl Prr {
    /// Begins a recovery with `recover_fs` bytes outstanding: snd.nxt - snd.una.
    pub(crate) fn new(recover_fs: u64) -> Self {
        Self { prr_delivered: 0, prr_out: 0, recover_fs: recover_fs.max(1) }
    }

    /// Returns how many bytes may be sent after an acknowledgement that newly delivered
    /// `delivered_data`. Below ssthresh, `grows` allows a segment more than was delivered.
    pub(crate) fn on_ack(
        &mut self,
        delivered_data: u64,
        pipe: u64,
        ssthresh: u64,
        mss: u64,
        grows: bool,
    ) -> u64 {
        self.prr_delivered += delivered_data;
        if pipe > ssthresh {
            // Proportional part: spreads the reduction over one window.
            let target = u128::from(self.prr_delivered) * u128::from(ssthresh);
            let target = u64::try_from(target.div_ceil(u128::from(self.recover_fs))).unwrap_or(u64::MAX);
            target.saturating_sub(self.prr_out)
        } else {
            // PRR-SSRB grows back to ssthresh, no faster than slow start; PRR-CRB replaces what was
            // delivered.
            let more = if grows { mss } else { 0 };
            let limit = self.prr_delivered.saturating_sub(self.prr_out).max(delivered_data) + more;
            (ssthresh - pipe).min(limit)
        }
    }

    /// Counts `bytes` sent, new or retransmitted.
    pub(crate) fn on_sent(&mut self, bytes: u64) {
        self.prr_out += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One loss in a window of 20 segments halved to 10: one sent per two delivered, as in RFC 6937
    /// §4.
    #[test]
    fn half_of_what_is_delivered_is_sent_when_the_window_halves() {
        let mut prr = Prr::new(20);
        let (mut pipe, ssthresh) = (19u64, 10);
        let mut sent = Vec::new();
        // 19 segments are delivered after the lost one; each leaves the pipe.
        for _ in 0..19 {
            pipe -= 1;
            let sndcnt = prr.on_ack(1, pipe, ssthresh, 1, true);
            prr.on_sent(sndcnt);
            pipe += sndcnt;
            sent.push(sndcnt);
        }
        // The last three belong to the reduction bound: the pipe has reached ssthresh.
        assert_eq!(sent, [1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 1, 1]);
        assert_eq!(pipe, ssthresh);
    }

    /// Fifteen of twenty lost: the pipe is below ssthresh, and grows by at most one more than was
    /// delivered.
    #[test]
    fn after_a_burst_of_losses_the_pipe_grows_like_slow_start() {
        let mut prr = Prr::new(20);
        let (mut pipe, ssthresh) = (4u64, 10);
        let mut sent = Vec::new();
        for _ in 0..6 {
            pipe = pipe.saturating_sub(1);
            let sndcnt = prr.on_ack(1, pipe, ssthresh, 1, true);
            prr.on_sent(sndcnt);
            pipe += sndcnt;
            sent.push(sndcnt);
        }
        assert_eq!(sent, [2, 2, 2, 2, 2, 2]);
        assert_eq!(pipe, 10);
    }

    /// Conservative reduction bound, with the same losses: the pipe keeps its size.
    #[test]
    fn without_growth_only_what_was_delivered_is_replaced() {
        let mut prr = Prr::new(20);
        let (mut pipe, ssthresh) = (4u64, 10);
        for _ in 0..6 {
            pipe -= 1;
            let sndcnt = prr.on_ack(1, pipe, ssthresh, 1, false);
            prr.on_sent(sndcnt);
            pipe += sndcnt;
            assert_eq!((sndcnt, pipe), (1, 4));
        }
    }

    /// The pipe never exceeds ssthresh, and no more is sent than was delivered plus a segment per
    /// acknowledgement.
    #[test]
    fn the_pipe_never_ends_above_ssthresh() {
        for window in 4..60u64 {
            for lost in 1..window {
                let mut prr = Prr::new(window);
                let ssthresh = (window / 2).max(2);
                let mut pipe = window - lost;
                for _ in 0..window - lost {
                    pipe -= 1;
                    let sndcnt = prr.on_ack(1, pipe, ssthresh, 1, true);
                    prr.on_sent(sndcnt);
                    pipe += sndcnt;
                    assert!(
                        sndcnt <= 2 && pipe <= ssthresh.max(window - lost),
                        "window {window}, lost {lost}"
                    );
                }
                assert!(pipe <= ssthresh, "window {window}, lost {lost}: pipe {pipe}");
            }
        }
    }
}
