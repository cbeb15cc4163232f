//! One page load: Table I, Table II, Figs. 2 and 3.

use marcato_units::{Bytes, Priority, Rate, Time};

use super::page;
use super::path::{Path, Scheme, Transfer};
use crate::error::SimulationError;

/// Times of a page load, in ms since the first data byte arrived, as the authors measure them.
#[derive(Clone, Debug)]
pub(super) struct Load {
    /// Time from `connect` to the first data byte.
    pub(super) first_byte: f64,
    /// Completion of each group.
    pub(super) done: [f64; Priority::COUNT],
    /// Longest time without a byte of the group, from the first byte of the page to the group's
    /// completion.
    pub(super) longest_wait: [f64; Priority::COUNT],
    /// Every delivery: time, group, bytes.
    pub(super) deliveries: Vec<(f64, Priority, Bytes)>,
}

impl Load {
    /// Loads the page by `scheme`.
    pub(super) fn run(path: &Path, scheme: Scheme, seed: u64) -> Result<Self, SimulationError> {
        let transfer = path.send(scheme, &page::plan(), Time::from_secs(30), seed)?;
        Self::of(&transfer)
    }

    /// Times of the load that `transfer` made. Its plan must be in the page's order.
    pub(super) fn of(transfer: &Transfer) -> Result<Self, SimulationError> {
        let first_byte = transfer.first_byte()?;
        let mut done = [0.0; Priority::COUNT];
        for (place, priority) in page::ORDER.into_iter().enumerate() {
            done[priority.index()] = transfer.complete(place)? - first_byte;
        }
        let deliveries: Vec<_> = transfer
            .deliveries()?
            .into_iter()
            .filter_map(|(at, place, bytes)| page::ORDER.get(place).map(|&priority| (at, priority, bytes)))
            .collect();
        let mut last = [0.0; Priority::COUNT];
        let mut longest_wait = [0.0; Priority::COUNT];
        for &(at, priority, _) in &deliveries {
            let group = priority.index();
            longest_wait[group] = f64::max(longest_wait[group], at - last[group]);
            last[group] = at;
        }
        Ok(Self { first_byte, done, longest_wait, deliveries })
    }

    /// First contentful paint: the later of P0 and P1. CATS Table II, note a.
    pub(super) fn fcp(&self) -> f64 {
        self.done[0].max(self.done[1])
    }

    /// Time to interactive: the latest of P0, P1 and P2. Note b.
    pub(super) fn tti(&self) -> f64 {
        self.fcp().max(self.done[2])
    }

    /// Largest contentful paint: P3. Note c.
    pub(super) fn lcp(&self) -> f64 {
        self.done[3]
    }

    /// Estimate of the layout shift: the time from layout (P1) to image (P3), negative if the image
    /// came first. Note d.
    pub(super) fn cls(&self) -> f64 {
        self.done[3] - self.done[1]
    }

    /// Completion of the whole page.
    pub(super) fn page_load(&self) -> f64 {
        self.done.into_iter().fold(0.0, f64::max)
    }

    /// Fig. 3: bytes of the group over the time from the page's first byte to the group's
    /// completion, in Mbit/s.
    pub(super) fn effective_throughput(&self, priority: Priority) -> f64 {
        let bits = page::GROUPS[priority.index()].get() as f64 * 8.0;
        bits / (self.done[priority.index()] * 1e-3) / 1e6
    }
}

/// Lower bound of the completion of the groups `upto`, in ms since `connect`: the first byte, then
/// all their other segments at the bottleneck's rate.
pub(super) fn physical_limit(path: &Path, first_byte: f64, upto: Priority) -> f64 {
    let segments: u64 =
        page::GROUPS[..=upto.index()].iter().map(|g| g.get().div_ceil(path.chunk().get())).sum();
    let rate: Rate = path.bottleneck;
    let rest = rate.transmission_time(path.segment_on_wire() * (segments - 1));
    first_byte + rest.as_secs_f64() * 1e3
}
