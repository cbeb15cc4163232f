//! Reader of sizes, pauses, and periods of sending.

use marcato_document::form::{Checked, Number, Single, SomeSize, SomeSpan, Span, Text, one_of};
use marcato_document::quantity::{self, Of};
use marcato_document::schema::{self, Entry, Schema, Usual};
use marcato_document::{Item, Keyed, Keys, Pairs, Value, WriteKeyed, keyed, quantity_of, quote};
use marcato_units::{Bytes, Duration, Word, Worded};

use crate::kinded::{Kinded as _, kind_of, kinds};
use crate::traffic::{OnOff, Pause, Size};

/// Kinds of sizes, as in files.
enum SizeKind {
    Constant(ConstantSize),
    Exponential(ExponentialSize),
    Pareto(ParetoSize),
    LogNormal(LogNormalSize),
}

kinds! {
    SizeKind, ():
    "constant" => Constant(ConstantSize),
    "exponential" => Exponential(ExponentialSize),
    "pareto" => Pareto(ParetoSize),
    "log-normal" => LogNormal(LogNormalSize),
}

/// Keys of a constant size.
pub(crate) struct ConstantSize {
    size: Bytes,
}

keyed! {
    ConstantSize, "a constant size" kinded, |_of: ()|;
    /// the size
    "size" => size: SomeSize, need("state how long, for example size = \"100 kB\"");
}

/// Keys of an exponential size.
pub(crate) struct ExponentialSize {
    mean: Bytes,
}

keyed! {
    ExponentialSize, "an exponential size" kinded, |_of: ()|;
    /// the mean
    "mean" => mean: SomeSize, need("state how long on average, for example mean = \"100 kB\"");
}

/// Keys of a Pareto size.
pub(crate) struct ParetoSize {
    shape: f64,
    mean: Bytes,
    most: Bytes,
}

keyed! {
    ParetoSize, "a pareto size" kinded, |_of: ()|, check most_is_above_the_mean;
    /// the mean
    "mean" => mean: SomeSize, need("state how long on average, for example mean = \"100 kB\"");
    /// exponent of its tail, above 1; lower values have a heavier tail
    "shape" => shape: Checked(Number(0.0..=100.0), shape_has_a_mean),
        need("state how heavy its tail is, for example shape = 1.2");
    /// maximum; longer draws are cut to it
    "most" => most: SomeSize, or(Bytes::new(1 << 40); "1 TiB");
}

fn shape_has_a_mean(keys: &Keys<'_>, key: &'static str, shape: &f64) {
    if *shape <= 1.0 {
        keys.fault(key, "`shape` is above 1: at 1 and below a pareto distribution has no mean");
    }
}

fn most_is_above_the_mean(of: &ParetoSize, keys: &Keys<'_>, _: &()) {
    if of.most < of.mean {
        keys.fault("most", "`most` is below the mean: raise it");
    }
}

/// Keys of a log-normal size.
pub(crate) struct LogNormalSize {
    mean: Bytes,
    sigma: f64,
}

keyed! {
    LogNormalSize, "a log-normal size" kinded, |_of: ()|;
    /// the mean
    "mean" => mean: SomeSize, need("state how long on average, for example mean = \"100 kB\"");
    /// standard deviation of the natural logarithm
    "sigma" => sigma: Number(0.0..=10.0), need("state how much its logarithm varies, for example sigma = 1.5");
}

impl From<SizeKind> for Size {
    fn from(kind: SizeKind) -> Self {
        match kind {
            SizeKind::Constant(ConstantSize { size }) => Self::Constant(size),
            SizeKind::Exponential(ExponentialSize { mean }) => Self::Exponential { mean },
            SizeKind::Pareto(ParetoSize { shape, mean, most }) => Self::Pareto { shape, mean, most },
            SizeKind::LogNormal(LogNormalSize { mean, sigma }) => Self::LogNormal { mean, sigma },
        }
    }
}

impl From<Size> for SizeKind {
    fn from(size: Size) -> Self {
        match size {
            Size::Constant(size) => Self::Constant(ConstantSize { size }),
            Size::Exponential { mean } => Self::Exponential(ExponentialSize { mean }),
            Size::Pareto { shape, mean, most } => Self::Pareto(ParetoSize { shape, mean, most }),
            Size::LogNormal { mean, sigma } => Self::LogNormal(LogNormalSize { mean, sigma }),
        }
    }
}

/// Sizes of UDP packets, as in files.
pub(crate) enum UdpSizes {
    Constant(ConstantSize),
    Exponential(ExponentialSize),
    Pareto(ParetoSize),
    LogNormal(LogNormalSize),
    Listed(ListedSizes),
}

kinds! {
    UdpSizes, ():
    "constant" => Constant(ConstantSize),
    "exponential" => Exponential(ExponentialSize),
    "pareto" => Pareto(ParetoSize),
    "log-normal" => LogNormal(LogNormalSize),
    "file" => Listed(ListedSizes),
}

/// Keys of sizes from a file.
pub(crate) struct ListedSizes {
    pub(crate) file: String,
    pub(crate) order: Order,
}

/// Order in which the lines of a file are used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    InTurn,
    Random,
}

impl Worded for Order {
    const WORDS: &'static [Word<Self>] = &[("in-turn", Self::InTurn), ("random", Self::Random)];
}

keyed! {
    ListedSizes, "sizes from a file" kinded, |_of: ()|;
    /// its path, relative to this file; a whole number of bytes in each line, at most a million
    /// lines
    "file" => file: Checked(Text, is_a_path),
        need("state which, with a size in bytes in each line, for example file = \"sizes.txt\"");
    /// `"in-turn"`, from the first line again after the last; or `"random"`, a drawn line for each
    /// packet
    "order" => order: one_of::<Order>(), or(Order::InTurn);
}

#[expect(clippy::ptr_arg, reason = "the form's value is a string")]
fn is_a_path(keys: &Keys<'_>, key: &'static str, file: &String) {
    if file.is_empty() {
        keys.fault(key, "`file` is empty: give the path of a file, relative to this one");
    }
}

/// Payload of UDP packets.
pub(crate) enum UdpPayload {
    Drawn(Size),
    Listed(ListedSizes),
}

/// Reads a size, a distribution of sizes, or a file with sizes.
pub(crate) fn udp_sizes(keys: &Keys<'_>, key: &'static str) -> Option<UdpPayload> {
    let item = keys.item(key)?;
    if !matches!(item.value, Value::Table(_)) {
        return keys.some_size(key).map(Size::Constant).map(UdpPayload::Drawn);
    }
    Some(match kind_of::<UdpSizes>().read_one(keys, key, &())? {
        UdpSizes::Constant(of) => UdpPayload::Drawn(SizeKind::Constant(of).into()),
        UdpSizes::Exponential(of) => UdpPayload::Drawn(SizeKind::Exponential(of).into()),
        UdpSizes::Pareto(of) => UdpPayload::Drawn(SizeKind::Pareto(of).into()),
        UdpSizes::LogNormal(of) => UdpPayload::Drawn(SizeKind::LogNormal(of).into()),
        UdpSizes::Listed(of) => UdpPayload::Listed(of),
    })
}

/// Kinds of pauses, as in files.
enum PauseKind {
    Constant(ConstantPause),
    Exponential(ExponentialPause),
}

kinds! {
    PauseKind, ():
    "constant" => Constant(ConstantPause),
    "exponential" => Exponential(ExponentialPause),
}

/// Keys of a constant pause.
pub(crate) struct ConstantPause {
    span: Duration,
}

keyed! {
    ConstantPause, "a constant pause" kinded, |_of: ()|;
    /// the span
    "span" => span: Span, need("state how long, for example span = \"1 s\"");
}

/// Keys of an exponential pause.
pub(crate) struct ExponentialPause {
    mean: Duration,
}

keyed! {
    ExponentialPause, "an exponential pause" kinded, |_of: ()|;
    /// the mean
    "mean" => mean: SomeSpan, need("state how long on average, for example mean = \"1 s\"");
}

/// Size, or a distribution of sizes.
pub(crate) struct Sizes;

impl<C> Single<C> for Sizes {
    type Value = Size;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, _: &C) -> Option<Size> {
        if matches!(keys.item(key)?.value, Value::Table(_)) {
            kind_of::<SizeKind>().read_one(keys, key, &()).map(Size::from)
        } else {
            keys.some_size(key).map(Size::Constant)
        }
    }

    fn toml(&self, of: &Size) -> String {
        match of {
            Size::Constant(bytes) => quote(&quantity::size(*bytes)),
            other => SizeKind::from(*other).toml(),
        }
    }
}

/// Span, or a distribution of spans.
pub(crate) struct Pauses;

impl<C> Single<C> for Pauses {
    type Value = Pause;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, _: &C) -> Option<Pause> {
        if !matches!(keys.item(key)?.value, Value::Table(_)) {
            return keys.span(key).map(Pause::Constant);
        }
        Some(match kind_of::<PauseKind>().read_one(keys, key, &())? {
            PauseKind::Constant(ConstantPause { span }) => Pause::Constant(span),
            PauseKind::Exponential(ExponentialPause { mean }) => Pause::Exponential { mean },
        })
    }

    fn toml(&self, of: &Pause) -> String {
        match *of {
            Pause::Constant(time) => quote(&quantity::span(time)),
            Pause::Exponential { mean } => PauseKind::Exponential(ExponentialPause { mean }).toml(),
        }
    }
}

/// Context of [`OnOff`]: `on` and `off` are both given, or neither.
pub(crate) struct BothOrNeither;

impl Keyed<BothOrNeither> for Option<OnOff> {
    const ENTRIES: &'static [&'static [Entry]] = &[&[Entry {
        keys: &[
            schema::Key { name: "on", meaning: " time that it sends before a silence: a [pause](#traffic)" },
            schema::Key { name: "off", meaning: " length of a silence" },
        ],
        usual: Usual::Text(&["always", "never"]),
    }]];
    const SCHEMA: Schema = Schema { what: "times of sending", keys: &[], entries: Self::ENTRIES };

    fn read(keys: &Keys<'_>, _: &BothOrNeither) -> Option<Self> {
        match (keys.item("on"), keys.item("off")) {
            (None, None) => return Some(None),
            (Some(_), None) => keys.fault("on", "`on` needs `off`: state for how long it is silent"),
            (None, Some(_)) => keys.fault("off", "`off` needs `on`: state for how long it sends"),
            (Some(_), Some(_)) => {}
        }
        let some = |key| {
            let pause = Pauses.read_one(keys, key, &())?;
            if pause.mean().is_zero() {
                keys.fault(key, format!("`{key}` is 0: set it above 0, or remove `on` and `off`"));
            }
            Some(pause)
        };
        let (on, off) = (some("on"), some("off"));
        Some(on.zip(off).map(|(on, off)| OnOff { on, off }))
    }
}

impl WriteKeyed<BothOrNeither> for Option<OnOff> {
    fn write(&self, pairs: &mut Pairs) {
        if let Some(OnOff { on, off }) = self {
            let pause = |pause| Single::<()>::toml(&Pauses, pause);
            pairs.raw("on", pause(on)).raw("off", pause(off));
        }
    }
}

/// Reads the arrival rate of connections, as the mean interval.
pub(crate) fn frequency(keys: &Keys<'_>, key: &str) -> Option<Duration> {
    let item: &Item = keys.item(key)?;
    let Some(text) = item.as_str() else {
        match &item.value {
            Value::Integer(_) | Value::Float(_) => {
                let number = item.spoken();
                keys.fault(
                    key,
                    format!("`{key}` is a frequency and needs a unit: write \"{number} /s\", not {number}"),
                );
            }
            _ => {
                // The call reports the wrong type.
                quantity_of(key, item, Of::Span, keys.faults);
            }
        }
        return None;
    };
    match marcato_document::quantity::read_frequency(text) {
        Ok(gap) if gap.is_zero() => {
            keys.fault(key, format!("`{text}` is more than one per nanosecond: lower it"));
            None
        }
        Ok(gap) => Some(gap),
        Err(wrong) => {
            keys.fault(key, wrong);
            None
        }
    }
}
