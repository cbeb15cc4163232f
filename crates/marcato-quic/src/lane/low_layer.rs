//! State of a lane that the session manages as one of the low layer.

/// State of a low lane.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LowLayer {
    /// The lane sends nothing, because it does harm or is being tested for harm.
    pub(crate) parked: bool,
    /// The owner was informed that this lane carries all data.
    pub(crate) alone: bool,
}
