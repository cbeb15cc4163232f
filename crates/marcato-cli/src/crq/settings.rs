//! Settings of CRQ on a device: from flags, from a file, and as they are kept with the attachment.
//!
//! They are a text in a pinned map, beside the configuration that the programs read. The command keeps no
//! file, so the text cannot be older or newer than the programs.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use marcato_kernel::{
    ClassId, Configuration, Device, QueueKind, Reverse, Shaper, Side, YoungPlace, YoungQueue,
};
use marcato_queue::{Admission, YoungConfig};
use marcato_scenario::traffic::Preset;
use marcato_units::{Bytes, Rate};
use serde::{Deserialize, Serialize};

use super::CrqError;
use crate::perf::quantity;

/// Smallest and largest number of flows. The states of the most take 61 MB of the kernel's memory.
pub(crate) const LEAST_FLOWS: u32 = 16;
pub(crate) const MOST_FLOWS: u32 = 1 << 17;
/// Defaults that are no zero.
const SHARE: u8 = 50;
const YOUNG: u8 = 75;
/// Largest share of young flows.
const MOST_YOUNG: u8 = 90;
const FLOWS: u32 = 16_384;
const ROUND_TRIP: Duration = Duration::from_millis(100);

/// Settings of CRQ. What is not set has its default.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Settings {
    /// Rate that CRQ shapes to: slightly below that of the device, or of the line behind it
    #[arg(long, value_name = "RATE", value_parser = quantity::rate)]
    #[serde(default, with = "rates", skip_serializing_if = "Option::is_none")]
    pub(crate) rate: Option<Rate>,

    /// Discipline of the standard queue, for flows that do not slow down [default: codel]
    #[arg(long, value_enum)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) standard: Option<QueueName>,

    /// Discipline of the responsive queue, for flows that slow down after drops or marks [default: codel]
    #[arg(long, value_enum)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) responsive: Option<QueueName>,

    /// Responsive queue's share of the rate while both queues are busy, in %, 1 to 99 [default: 50]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=99))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) share: Option<u8>,

    /// Share of the rate for young and sparse flows, which go first, in %, 0 to 90 [default: 75, 0 with the presets authors and paper]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=90))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) young: Option<u8>,

    /// Discipline of the queue of young flows [default: fq-codel, droptail if the standard queue is droptail]
    #[arg(long, value_enum)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) young_queue: Option<QueueName>,

    /// Bytes that a flow may send as a young one [default: 500kB]
    #[arg(long, value_name = "SIZE", value_parser = allowance)]
    #[serde(default, with = "sizes", skip_serializing_if = "Option::is_none")]
    pub(crate) young_allowance: Option<Bytes>,

    /// Rate at which a flow regains them: a flow that sends less is always young [default: 128kbit]
    #[arg(long, value_name = "RATE", value_parser = regain)]
    #[serde(default, with = "regains", skip_serializing_if = "Option::is_none")]
    pub(crate) young_regain: Option<Rate>,

    /// Rules by which flows are judged [default: marcato]
    #[arg(long, value_enum)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) preset: Option<PresetName>,

    /// Verdict that a flow needs for the responsive queue [default: ecn if that queue is codel-ecn, else loss]
    #[arg(long, value_enum)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) admit: Option<AdmitName>,

    /// Typical round trip of the flows, which sizes the queues [default: 100ms]
    #[arg(long, value_name = "SPAN", value_parser = quantity::span)]
    #[serde(default, with = "spans", skip_serializing_if = "Option::is_none")]
    pub(crate) round_trip: Option<Duration>,

    /// Number of flows that are followed at once [default: 16384]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(i64::from(LEAST_FLOWS)..=i64::from(MOST_FLOWS)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) flows: Option<u32>,

    /// Class of an HTB that is there, below which CRQ gets its queues, such as 1:10; may be given several times [default: the whole device]
    #[arg(long, value_name = "CLASS")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) parent: Vec<ClassId>,

    /// CSV file of subscribers, such as ShapedDevices.csv of LibreQoS: each has a class of its rates, and CRQ below it
    #[arg(long, value_name = "FILE", conflicts_with = "parent")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) subscribers: Option<PathBuf>,

    /// Direction of the packets that leave the device, as subscribers have it [default: download]
    #[arg(long, value_enum)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) direction: Option<DirectionName>,

    /// Device by which the other direction of the flows leaves, if it does not enter by the device itself [default: for an IFB, the device whose packets are redirected to it]
    #[arg(long, value_name = "DEV")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reverse: Option<String>,
}

/// Parses the allowance of young flows.
fn allowance(text: &str) -> Result<Bytes, String> {
    let possible = |bytes: &Bytes| (1..=1 << 30).contains(&bytes.get());
    quantity::size(text)
        .ok()
        .filter(possible)
        .ok_or_else(|| format!("`{text}` is no size of 1B to 1024MiB: write 500kB"))
}

/// Parses the rate at which a young flow regains its allowance.
fn regain(text: &str) -> Result<Rate, String> {
    let possible = |rate: &Rate| rate.as_bps() >= 8000;
    quantity::rate(text)
        .ok()
        .filter(possible)
        .ok_or_else(|| format!("`{text}` is no rate of 8 kbit/s or more: write 128kbit"))
}

/// Directions of subscribers' packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DirectionName {
    /// Packets for subscribers: they are found by destination, and have the download rates
    Download,
    /// Packets from subscribers: they are found by source, and have the upload rates
    Upload,
}

impl std::fmt::Display for DirectionName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Download => "download",
            Self::Upload => "upload",
        })
    }
}

impl From<DirectionName> for Side {
    fn from(name: DirectionName) -> Self {
        match name {
            DirectionName::Download => Self::Destination,
            DirectionName::Upload => Self::Source,
        }
    }
}

/// Disciplines of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum QueueName {
    /// First in, first out, with room for one bandwidth-delay product
    Droptail,
    /// CoDel (RFC 8289), which drops
    Codel,
    /// CoDel, which marks packets that allow it
    CodelEcn,
    /// FQ-CoDel (RFC 8290), which drops
    FqCodel,
}

impl From<QueueName> for QueueKind {
    fn from(name: QueueName) -> Self {
        match name {
            QueueName::Droptail => Self::DropTail,
            QueueName::Codel => Self::Codel,
            QueueName::CodelEcn => Self::CodelEcn,
            QueueName::FqCodel => Self::FqCodel,
        }
    }
}

/// Rules by which flows are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PresetName {
    /// Rules of this project, which tell a response from a coincidence
    Marcato,
    /// Rules of the paper's published program
    Authors,
    /// Rules as printed in the paper
    Paper,
}

impl From<PresetName> for Preset {
    fn from(name: PresetName) -> Self {
        match name {
            PresetName::Marcato => Self::Marcato,
            PresetName::Authors => Self::Authors,
            PresetName::Paper => Self::Paper,
        }
    }
}

/// Verdicts that admit a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AdmitName {
    /// The verdict on loss
    Loss,
    /// The verdict on marks
    Ecn,
    /// Either verdict
    Any,
}

impl From<AdmitName> for Admission {
    fn from(name: AdmitName) -> Self {
        match name {
            AdmitName::Loss => Self::Loss,
            AdmitName::Ecn => Self::Ecn,
            AdmitName::Any => Self::Any,
        }
    }
}

impl Settings {
    /// Reads a file of settings.
    pub(super) fn from_toml(text: &str, origin: &str) -> Result<Self, CrqError> {
        let wrong = |why: String| CrqError::Settings { origin: origin.to_owned(), why };
        let settings: Self =
            toml::from_str(text).map_err(|error| wrong(error.to_string().trim_end().to_owned()))?;
        let within = |name: &str, value: Option<u32>, least: u32, most: u32| match value {
            Some(value) if !(least..=most).contains(&value) => {
                Err(wrong(format!("{name} = {value} is not possible: write {least} to {most}")))
            }
            _ => Ok(()),
        };
        within("share", settings.share.map(u32::from), 1, 99)?;
        within("young", settings.young.map(u32::from), 0, MOST_YOUNG.into())?;
        within("flows", settings.flows, LEAST_FLOWS, MOST_FLOWS)?;
        Ok(settings)
    }

    /// Returns these settings, completed by others.
    pub(super) fn over(self, others: Self) -> Self {
        Self {
            rate: self.rate.or(others.rate),
            standard: self.standard.or(others.standard),
            responsive: self.responsive.or(others.responsive),
            share: self.share.or(others.share),
            young: self.young.or(others.young),
            young_queue: self.young_queue.or(others.young_queue),
            young_allowance: self.young_allowance.or(others.young_allowance),
            young_regain: self.young_regain.or(others.young_regain),
            preset: self.preset.or(others.preset),
            admit: self.admit.or(others.admit),
            round_trip: self.round_trip.or(others.round_trip),
            flows: self.flows.or(others.flows),
            reverse: self.reverse.or(others.reverse),
            subscribers: self.subscribers.or(others.subscribers),
            direction: self.direction.or(others.direction),
            parent: if self.parent.is_empty() { others.parent } else { self.parent },
        }
    }

    /// Returns the queues, if there is a rate.
    pub(super) fn shaper(&self) -> Option<Shaper> {
        self.rate.map(|rate| self.shaper_of(rate))
    }

    /// Returns the direction of subscribers' packets.
    pub(super) fn direction(&self) -> DirectionName {
        self.direction.unwrap_or(DirectionName::Download)
    }

    /// Returns whether packets are sent to queues, and not watched only.
    pub(super) fn shapes(&self) -> bool {
        self.rate.is_some() || !self.parent.is_empty()
    }

    /// Returns the queues of a rate.
    pub(super) fn shaper_of(&self, rate: Rate) -> Shaper {
        Shaper {
            rate,
            share: self.share.unwrap_or(SHARE),
            standard: self.standard.unwrap_or(QueueName::Codel).into(),
            responsive: self.responsive.unwrap_or(QueueName::Codel).into(),
            round_trip: self.round_trip.unwrap_or(ROUND_TRIP),
            young: self.young(),
        }
    }

    /// Returns the queue of young flows, if there is to be one.
    fn young(&self) -> Option<YoungQueue> {
        let usual = if self.preset() == Preset::Marcato { YOUNG } else { 0 };
        // A kernel for drop-tail queues may have nothing else.
        let kind = match self.standard {
            Some(QueueName::Droptail) => QueueName::Droptail,
            _ => QueueName::FqCodel,
        };
        let share = self.young.unwrap_or(usual);
        (share > 0).then(|| YoungQueue { share, kind: self.young_queue.unwrap_or(kind).into() })
    }

    pub(super) fn preset(&self) -> Preset {
        self.preset.unwrap_or(PresetName::Marcato).into()
    }

    pub(super) fn admission(&self) -> Admission {
        let by_queue = match self.responsive {
            Some(QueueName::CodelEcn) => AdmitName::Ecn,
            _ => AdmitName::Loss,
        };
        self.admit.unwrap_or(by_queue).into()
    }

    pub(super) fn flows(&self) -> u32 {
        self.flows.unwrap_or(FLOWS)
    }

    /// Returns the configuration of the programs on a device. `reverse` is the device by which the other
    /// direction leaves, if it does not enter by the first.
    pub(super) fn configuration(&self, device: &Device, reverse: Option<&Device>) -> Configuration {
        let preset = self.preset();
        // Names of classes are the same at every rate.
        let shaper = self.shapes().then(|| self.shaper_of(self.rate.unwrap_or_default()));
        let young = shaper.filter(|shaper| shaper.young.is_some()).map(|shaper| YoungPlace {
            priority: shaper.young_priority(),
            allowance: self.young_allowance.unwrap_or(YoungConfig::ALLOWANCE),
            regain: self.young_regain.unwrap_or(YoungConfig::REGAIN),
            secret: secret(),
        });
        Configuration {
            young,
            quic: preset.quic(),
            admission: self.admission(),
            priority: shaper.map_or([0; 2], |shaper| shaper.priority()),
            netns: device.netns,
            ifindex: device.ifindex,
            // An IFB says that its packets are Ethernet, and they are as they came from the other device.
            ethernet: reverse.filter(|_| device.ifb).unwrap_or(device).ethernet,
            reverse: reverse.map(|it| Reverse { ifindex: it.ifindex, ethernet: it.ethernet }),
            side: self.subscribers.as_ref().map(|_| self.direction().into()),
            ..Configuration::watching(preset.trap())
        }
    }

    /// Returns the names and values of all of them, for metrics.
    pub(super) fn labels(&self) -> Vec<(&'static str, String)> {
        let admission = match self.admission() {
            Admission::Loss => "loss",
            Admission::Ecn => "ecn",
            Admission::Any => "any",
        };
        let shaper = self.shapes().then(|| self.shaper_of(self.rate.unwrap_or_default()));
        let shaped = |value: &dyn Fn(&Shaper) -> String| shaper.as_ref().map_or(String::new(), value);
        let mut labels = vec![
            ("rate_bps", self.rate.map_or(String::new(), |rate| rate.as_bps().to_string())),
            ("share", shaped(&|it| it.share.to_string())),
            ("young", shaped(&|it| it.young.map_or(0, |young| young.share).to_string())),
            ("standard", shaped(&|_| queue_name(self.standard))),
            ("responsive", shaped(&|_| queue_name(self.responsive))),
            ("preset", self.preset().name().to_owned()),
            ("admit", admission.to_owned()),
            ("flows", self.flows().to_string()),
            ("reverse", self.reverse.clone().unwrap_or_default()),
        ];
        if let Some(path) = &self.subscribers {
            labels.push(("subscribers", path.display().to_string()));
            labels.push(("direction", self.direction().to_string()));
        }
        if !self.parent.is_empty() {
            labels.push(("parent", names(&self.parent, " ")));
        }
        labels
    }

    /// Returns a line that names them, for readers.
    pub(super) fn shown(&self) -> String {
        let admission = match self.admission() {
            Admission::Loss => "loss",
            Admission::Ecn => "marks",
            Admission::Any => "loss or marks",
        };
        let reverse = self.reverse.as_ref().map_or(String::new(), |it| format!(", other direction by {it}"));
        let rules = format!("preset {}{reverse}", self.preset().name());
        match self.shapes().then(|| self.shaper_of(self.rate.unwrap_or_default())) {
            None => format!("watched only, {rules}"),
            Some(shaper) => {
                let rate = self.rate.map_or("the rate of each class".to_owned(), quantity::shown_rate);
                let below = match self.parent.as_slice() {
                    [] => self.subscribers.as_ref().map_or(String::new(), |path| {
                        format!("subscribers of {} ({}): ", path.display(), self.direction())
                    }),
                    parents => format!("below {}: ", names(parents, ", ")),
                };
                let young = shaper
                    .young
                    .map_or(String::new(), |young| format!("young flows first with {} %, ", young.share));
                format!(
                    "{below}{rate}, {young}standard queue {}, responsive queue {} with {} %, {rules}, admitted by response to {admission}",
                    queue_name(self.standard),
                    queue_name(self.responsive),
                    shaper.share,
                )
            }
        }
    }
}

/// Returns the names of classes in one text.
fn names(classes: &[ClassId], between: &str) -> String {
    classes.iter().map(ToString::to_string).collect::<Vec<_>>().join(between)
}

/// Returns the word of a queue, or of the default.
fn queue_name(queue: Option<QueueName>) -> String {
    let value = queue.unwrap_or(QueueName::Codel).to_possible_value();
    value.map_or(String::new(), |it| it.get_name().to_owned())
}

/// Random number that strangers do not know: the standard library seeds its hash tables by the system.
#[expect(clippy::cast_possible_truncation, reason = "any bits are as good")]
fn secret() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(()) as u32
}

mod sizes {
    use marcato_units::Bytes;
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::ref_option, reason = "the form that serde asks for")]
    pub(super) fn serialize<S: Serializer>(size: &Option<Bytes>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&size.map(|size| format!("{}B", size.get())).unwrap_or_default())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Bytes>, D::Error> {
        super::allowance(&String::deserialize(from)?).map(Some).map_err(serde::de::Error::custom)
    }
}

mod regains {
    use marcato_units::Rate;
    use serde::{Deserialize, Deserializer};

    pub(super) use super::rates::serialize;

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Rate>, D::Error> {
        super::regain(&String::deserialize(from)?).map(Some).map_err(serde::de::Error::custom)
    }
}

mod rates {
    use marcato_units::Rate;
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::perf::quantity;

    #[expect(clippy::ref_option, reason = "the form that serde asks for")]
    pub(super) fn serialize<S: Serializer>(rate: &Option<Rate>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&rate.map(quantity::shown_rate).unwrap_or_default())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Rate>, D::Error> {
        quantity::rate(&String::deserialize(from)?).map(Some).map_err(serde::de::Error::custom)
    }
}

mod spans {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    use crate::perf::quantity;

    #[expect(clippy::ref_option, reason = "the form that serde asks for")]
    pub(super) fn serialize<S: Serializer>(span: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&span.map(quantity::shown_span).unwrap_or_default())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        quantity::span(&String::deserialize(from)?).map(Some).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use marcato_units::Bytes;

    use super::*;

    #[test]
    fn a_file_has_the_words_of_the_flags() {
        let text = "rate = \"1gbit\"\nstandard = \"droptail\"\nresponsive = \"codel-ecn\"\nshare = 60\n\
                    preset = \"paper\"\nadmit = \"any\"\nround-trip = \"50ms\"\nflows = 1024\n\
                    young = 60\nyoung-queue = \"codel\"\nyoung-allowance = \"64KiB\"\nyoung-regain = \"1mbit\"\n";
        let settings = Settings::from_toml(text, "crq.toml").unwrap();
        let shaper = settings.shaper().unwrap();
        assert_eq!((shaper.rate, shaper.share), (Rate::from_mbps(1000), 60));
        assert_eq!(shaper.young, Some(YoungQueue { share: 60, kind: QueueKind::Codel }));
        let place = settings.configuration(&device(true, false), None).young.unwrap();
        assert_eq!((place.priority, place.allowance), (0x00c4_0030, Bytes::new(65_536)));
        assert_eq!(place.regain, Rate::from_mbps(1));
        assert_eq!((shaper.standard, shaper.responsive), (QueueKind::DropTail, QueueKind::CodelEcn));
        assert_eq!(
            (settings.preset(), settings.admission(), settings.flows()),
            (Preset::Paper, Admission::Any, 1024)
        );
        assert_eq!(Settings::from_toml(&toml::to_string(&settings).unwrap(), "").unwrap(), settings);
    }

    #[test]
    fn wrong_files_name_the_place_and_the_remedy() {
        for (text, said) in [
            ("rate = \"fast\"", "line 1"),
            ("rate = \"fast\"", "write 500kbit/s"),
            ("rate = \"1gbit\"\nqueue = 1", "unknown field `queue`"),
            ("standard = \"red\"", "codel-ecn"),
            ("share = 100", "share = 100 is not possible: write 1 to 99"),
            ("share = 300", "line 1"),
            ("young = 91", "young = 91 is not possible: write 0 to 90"),
            ("young-allowance = \"2000MiB\"", "write 500kB"),
            ("young-regain = \"7kbit\"", "write 128kbit"),
            ("flows = 3", "write 16 to"),
            ("round-trip = 5", "line 1"),
        ] {
            let error = Settings::from_toml(text, "crq.toml").unwrap_err().to_string();
            assert!(error.contains("crq.toml") && error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn classes_of_a_file_are_those_of_the_flags() {
        let settings = Settings::from_toml("parent = [\"1:10\", \"1:2a\"]", "crq.toml").unwrap();
        assert_eq!(settings.parent, ["1:10", "1:2a"].map(|name| name.parse().unwrap()));
        assert_eq!(Settings::from_toml(&toml::to_string(&settings).unwrap(), "").unwrap(), settings);
        assert!(settings.shapes() && settings.shaper().is_none());
        assert!(settings.shown().starts_with("below 1:10, 1:2a: the rate of each class, young flows first"));
        let place = settings.configuration(&device(true, false), None);
        assert_eq!(
            (place.priority, place.young.map(|it| it.priority)),
            ([0x00c4_0010, 0x00c4_0020], Some(0x00c4_0030))
        );
        let other = Settings { parent: vec!["1:30".parse().unwrap()], ..Settings::default() };
        assert_eq!(other.clone().over(settings.clone()).parent, other.parent);
        assert_eq!(Settings::default().over(settings.clone()), settings);
        let error = Settings::from_toml("parent = [\"1\"]", "crq.toml").unwrap_err().to_string();
        assert!(error.contains("line 1") && error.contains("such as 1:10"), "{error}");
    }

    #[test]
    fn a_queue_that_marks_admits_by_marks() {
        let of = |responsive| Settings { responsive, ..Settings::default() }.admission();
        assert_eq!(of(Some(QueueName::CodelEcn)), Admission::Ecn);
        assert_eq!((of(Some(QueueName::Droptail)), of(None)), (Admission::Loss, Admission::Loss));
        let any = Settings {
            responsive: Some(QueueName::CodelEcn),
            admit: Some(AdmitName::Any),
            ..Settings::default()
        };
        assert_eq!(any.admission(), Admission::Any);
    }

    #[test]
    fn without_a_rate_no_packet_changes_its_queue() {
        let device = device(true, false);
        let watching = Settings::default().configuration(&device, None);
        assert_eq!((watching.priority, watching.young), ([0; 2], None));
        let shaped = Settings { rate: Some(Rate::from_mbps(1)), ..Settings::default() };
        assert_eq!(shaped.configuration(&device, None).priority, [0x00c4_0010, 0x00c4_0020]);
    }

    fn device(ethernet: bool, ifb: bool) -> Device {
        let mtu = Bytes::new(1500);
        Device { name: "wan".to_owned(), ifindex: 3, netns: 4, ethernet, queues: 1, mtu, largest: mtu, ifb }
    }

    #[test]
    fn packets_of_an_ifb_are_read_as_those_of_their_device() {
        let ppp = device(false, false);
        let header = |of: &Device, reverse: Option<&Device>| {
            let configuration = Settings::default().configuration(of, reverse);
            (configuration.ethernet, configuration.reverse.map(|it| it.ethernet))
        };
        assert_eq!(header(&device(true, true), Some(&ppp)), (false, Some(false)));
        assert_eq!(header(&device(true, false), Some(&ppp)), (true, Some(false)));
        assert_eq!(header(&device(true, false), None), (true, None));
    }

    #[test]
    fn young_flows_go_first_except_by_the_papers_rules() {
        let young = |settings: Settings| {
            Settings { rate: Some(Rate::from_mbps(1)), ..settings }.shaper().unwrap().young
        };
        let usual = |kind| Some(YoungQueue { share: 75, kind });
        assert_eq!(young(Settings::default()), usual(QueueKind::FqCodel));
        let droptail = Settings { standard: Some(QueueName::Droptail), ..Settings::default() };
        assert_eq!(young(droptail), usual(QueueKind::DropTail));
        assert_eq!(young(Settings { young: Some(0), ..Settings::default() }), None);
        for preset in [PresetName::Authors, PresetName::Paper] {
            let preset = Settings { preset: Some(preset), ..Settings::default() };
            assert_eq!(young(preset.clone()), None);
            assert!(young(Settings { young: Some(40), ..preset }).is_some());
        }
    }
}
