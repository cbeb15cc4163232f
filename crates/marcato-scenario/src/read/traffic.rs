//! Reader of sizes, pauses, and periods of sending.

use marcato_units::Bytes;

use crate::document::{Item, Value};
use crate::keys::{Keys, Kind, quantity_of};
use crate::quantity::Of;
use crate::schema;
use crate::traffic::{OnOff, Pause, Size};

#[derive(Clone, Copy)]
enum SizeName {
    Constant,
    Exponential,
    Pareto,
    LogNormal,
}

const SIZES: &[Kind<SizeName>] = &[
    ("constant", SizeName::Constant, &schema::SIZE_CONSTANT),
    ("exponential", SizeName::Exponential, &schema::SIZE_EXPONENTIAL),
    ("pareto", SizeName::Pareto, &schema::SIZE_PARETO),
    ("log-normal", SizeName::LogNormal, &schema::SIZE_LOG_NORMAL),
];

/// Reads a size, or a distribution of sizes.
pub(super) fn size(keys: &Keys<'_>, key: &str) -> Option<Size> {
    let item = keys.item(key)?;
    if !matches!(item.value, Value::Table(_)) {
        return keys.some_size(key).map(Size::Constant);
    }
    let (name, tagged) = keys.tagged(key, SIZES)?;
    drawn(name, tagged.keys())
}

/// Sizes of UDP packets.
pub(super) enum UdpSizes {
    Drawn(Size),
    Listed { file: String, is_random: bool },
}

const UDP_SIZES: &[Kind<Option<SizeName>>] = &[
    ("constant", Some(SizeName::Constant), &schema::SIZE_CONSTANT),
    ("exponential", Some(SizeName::Exponential), &schema::SIZE_EXPONENTIAL),
    ("pareto", Some(SizeName::Pareto), &schema::SIZE_PARETO),
    ("log-normal", Some(SizeName::LogNormal), &schema::SIZE_LOG_NORMAL),
    ("file", None, &schema::SIZES_LISTED),
];

/// Reads a size, a distribution of sizes, or a file with sizes.
pub(super) fn udp_sizes(keys: &Keys<'_>, key: &str) -> Option<UdpSizes> {
    let item = keys.item(key)?;
    if !matches!(item.value, Value::Table(_)) {
        return keys.some_size(key).map(Size::Constant).map(UdpSizes::Drawn);
    }
    let (name, tagged) = keys.tagged(key, UDP_SIZES)?;
    let keys = tagged.keys();
    if let Some(name) = name {
        return drawn(name, keys).map(UdpSizes::Drawn);
    }
    keys.need("file", "say which, with a size in bytes in each line, for example file = \"sizes.txt\"");
    let file = keys.string("file")?;
    if file.is_empty() {
        keys.fault("file", "`file` is empty: say the path of a file, relative to this one");
    }
    let is_random = keys.word("order", &[("in-turn", false), ("random", true)]).unwrap_or(false);
    Some(UdpSizes::Listed { file: file.to_owned(), is_random })
}

fn drawn(name: SizeName, keys: Keys<'_>) -> Option<Size> {
    if !matches!(name, SizeName::Constant) {
        keys.need("mean", "say how long on average, for example mean = \"100 kB\"");
    }
    Some(match name {
        SizeName::Constant => {
            keys.need("size", "say how long, for example size = \"100 kB\"");
            Size::Constant(keys.some_size("size")?)
        }
        SizeName::Exponential => Size::Exponential { mean: keys.some_size("mean")? },
        SizeName::Pareto => {
            keys.need("shape", "say how heavy its tail is, for example shape = 1.2");
            let shape = keys.number("shape", 0.0..=100.0);
            if shape.is_some_and(|shape| shape <= 1.0) {
                keys.fault("shape", "`shape` is above 1: at 1 and below a pareto distribution has no mean");
            }
            let mean = keys.some_size("mean");
            let most = keys.some_size("most").unwrap_or(Bytes::new(1 << 40));
            if mean.is_some_and(|mean| most < mean) {
                keys.fault("most", "`most` is below the mean: raise it");
            }
            Size::Pareto { shape: shape?, mean: mean?, most }
        }
        SizeName::LogNormal => {
            keys.need("sigma", "say how much its logarithm varies, for example sigma = 1.5");
            let sigma = keys.number("sigma", 0.0..=10.0);
            Size::LogNormal { mean: keys.some_size("mean")?, sigma: sigma? }
        }
    })
}

const PAUSES: &[Kind<bool>] =
    &[("constant", false, &schema::PAUSE_CONSTANT), ("exponential", true, &schema::PAUSE_EXPONENTIAL)];

/// Reads a span, or a distribution of spans.
pub(super) fn pause(keys: &Keys<'_>, key: &str) -> Option<Pause> {
    let item = keys.item(key)?;
    if !matches!(item.value, Value::Table(_)) {
        return keys.span(key).map(Pause::Constant);
    }
    let (exponential, tagged) = keys.tagged(key, PAUSES)?;
    let keys = tagged.keys();
    if exponential {
        keys.need("mean", "say how long on average, for example mean = \"1 s\"");
        keys.some_span("mean").map(|mean| Pause::Exponential { mean })
    } else {
        keys.need("span", "say how long, for example span = \"1 s\"");
        keys.span("span").map(Pause::Constant)
    }
}

/// Reads `on` and `off`: both or neither.
pub(super) fn on_off(keys: &Keys<'_>) -> Option<OnOff> {
    match (keys.item("on"), keys.item("off")) {
        (None, None) => return None,
        (Some(_), None) => keys.fault("on", "`on` needs `off`: say for how long it is silent"),
        (None, Some(_)) => keys.fault("off", "`off` needs `on`: say for how long it sends"),
        (Some(_), Some(_)) => {}
    }
    let some = |key| {
        let pause = pause(keys, key)?;
        if pause.mean().is_zero() {
            keys.fault(key, format!("`{key}` is 0: say more, or leave `on` and `off` out"));
        }
        Some(pause)
    };
    let (on, off) = (some("on"), some("off"));
    Some(OnOff { on: on?, off: off? })
}

/// Reads the arrival rate of connections, as the mean interval.
pub(super) fn frequency(keys: &Keys<'_>, key: &str) -> Option<marcato_units::Duration> {
    let item: &Item = keys.item(key)?;
    let Some(text) = item.as_str() else {
        match &item.value {
            Value::Integer(_) | Value::Float(_) => {
                let number = item.spoken();
                keys.fault(
                    key,
                    format!("`{key}` is a frequency and needs a unit: say \"{number} /s\", not {number}"),
                );
            }
            _ => {
                // The call reports the wrong type.
                quantity_of(key, item, Of::Span, keys.faults);
            }
        }
        return None;
    };
    match crate::quantity::read_frequency(text) {
        Ok(gap) if gap.is_zero() => {
            keys.fault(key, format!("`{text}` is more than one each nanosecond: say less"));
            None
        }
        Ok(gap) => Some(gap),
        Err(wrong) => {
            keys.fault(key, wrong);
            None
        }
    }
}
