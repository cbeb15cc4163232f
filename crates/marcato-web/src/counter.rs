//! Counters, each declared once: its snapshot, the number that tasks increase, and its metric.

#![cfg_attr(
    not(feature = "full"),
    allow(
        dead_code,
        unused_macros,
        unused_imports,
        reason = "features decide which counters and metrics there are"
    )
)]

use std::sync::atomic::{AtomicU64, Ordering};

use marcato_units::Bytes;

/// Number that many tasks change. It orders no other memory, so that all accesses are relaxed.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds one.
    pub(crate) fn one(&self) {
        self.add(1);
    }

    pub(crate) fn add(&self, number: usize) {
        self.0.fetch_add(number as u64, Ordering::Relaxed);
    }

    pub(crate) fn less(&self, number: u64) {
        self.0.fetch_sub(number, Ordering::Relaxed);
    }

    /// Adds a number unless the sum would exceed a bound. Returns true if it did.
    pub(crate) fn add_within(&self, number: u64, bound: u64) -> bool {
        let more = |sum: u64| sum.checked_add(number).filter(|sum| *sum <= bound);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Value of a snapshot.
pub(crate) trait Value {
    /// True if it is a number of bytes.
    const IS_BYTES: bool = false;

    /// Returns the number, of which an array has several.
    fn number(&self, index: usize) -> u64;
}

/// Value of a snapshot that is read from a number which tasks change.
pub(crate) trait Counted: Value {
    type Live;

    fn read(live: &Self::Live) -> Self;
}

impl Value for u64 {
    fn number(&self, _: usize) -> u64 {
        *self
    }
}

impl Counted for u64 {
    type Live = Count;

    fn read(live: &Count) -> Self {
        live.get()
    }
}

impl Value for Bytes {
    const IS_BYTES: bool = true;

    fn number(&self, _: usize) -> u64 {
        self.get()
    }
}

impl Counted for Bytes {
    type Live = Count;

    fn read(live: &Count) -> Self {
        Self::new(live.get())
    }
}

impl<T: Value, const N: usize> Value for [T; N] {
    const IS_BYTES: bool = T::IS_BYTES;

    fn number(&self, index: usize) -> u64 {
        self[index].number(0)
    }
}

impl<T: Counted, const N: usize> Counted for [T; N] {
    type Live = [T::Live; N];

    fn read(live: &Self::Live) -> Self {
        std::array::from_fn(|index| T::read(&live[index]))
    }
}

impl Value for bool {
    fn number(&self, _: usize) -> u64 {
        (*self).into()
    }
}

impl Value for u32 {
    fn number(&self, _: usize) -> u64 {
        (*self).into()
    }
}

impl Value for usize {
    fn number(&self, _: usize) -> u64 {
        *self as u64
    }
}

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It only grows.
    Counter,
    /// Its present value.
    Gauge,
}

/// Metric of a field of a snapshot.
pub(crate) struct Metric<T> {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) kind: Kind,
    pub(crate) is_bytes: bool,
    /// Name and values of its label. One field has several if it is an array; fields of one name share a family.
    pub(crate) label: Option<(&'static str, &'static [&'static str])>,
    pub(crate) number: fn(&T, usize) -> u64,
}

/// Snapshot with metrics of its fields.
pub(crate) trait Metrics: Sized + 'static {
    const METRICS: &'static [Metric<Self>];
}

/// Declares the counters of one thing: the struct of a snapshot, the struct of numbers that tasks change, and the
/// metrics. `present` fields are filled in by the reader of the numbers.
///
/// A metric has `counter` or `gauge`, its name, its help, and, if others or other elements share its name, its label.
macro_rules! counters {
    (
        $(#[$snapshot_attribute:meta])*
        $snapshot_visibility:vis struct $snapshot:ident;
        $(#[$live_attribute:meta])*
        $live_visibility:vis struct $live:ident;
        counted {
            $(
                $(#[doc = $counted_doc:literal])+
                $counted:ident: $counted_type:ty $(=> $counted_kind:ident($($counted_metric:tt)+))?,
            )*
        }
        present {
            $(
                $(#[doc = $present_doc:literal])+
                $present:ident: $present_type:ty $(=> $present_kind:ident($($present_metric:tt)+))?,
            )*
        }
    ) => {
        $(#[$snapshot_attribute])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        $snapshot_visibility struct $snapshot {
            $($(#[doc = $counted_doc])+ pub $counted: $counted_type,)*
            $($(#[doc = $present_doc])+ pub $present: $present_type,)*
        }

        $(#[$live_attribute])*
        #[derive(Debug, Default)]
        $live_visibility struct $live {
            $(pub(crate) $counted: <$counted_type as $crate::counter::Counted>::Live,)*
        }

        impl $live {
            /// Returns the counters. The caller fills in what is present.
            $live_visibility fn read(&self) -> $snapshot {
                $snapshot {
                    $($counted: $crate::counter::Counted::read(&self.$counted),)*
                    $($present: Default::default(),)*
                }
            }
        }

        #[cfg(feature = "metrics")]
        impl $crate::counter::Metrics for $snapshot {
            const METRICS: &'static [$crate::counter::Metric<Self>] = &[
                $($($crate::counter::metric!($counted_kind $counted: $counted_type, $($counted_metric)+),)?)*
                $($($crate::counter::metric!($present_kind $present: $present_type, $($present_metric)+),)?)*
            ];
        }
    };
}

macro_rules! metric {
    ($kind:ident $field:ident: $type:ty, $name:literal, $help:literal $(, $label:literal = [$($value:literal),+])?) => {
        $crate::counter::Metric {
            name: $name,
            help: $help,
            kind: $crate::counter::metric!(@ $kind),
            is_bytes: <$type as $crate::counter::Value>::IS_BYTES,
            label: $crate::counter::metric!(@@ $($label, [$($value),+])?),
            number: |of: &Self, index| $crate::counter::Value::number(&of.$field, index),
        }
    };
    (@ counter) => { $crate::counter::Kind::Counter };
    (@ gauge) => { $crate::counter::Kind::Gauge };
    (@@) => { None };
    (@@ $label:literal, [$($value:literal),+]) => { Some(($label, &[$($value),+])) };
}

pub(crate) use {counters, metric};
