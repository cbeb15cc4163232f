//! Values that are read when they are asked for.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::Watched;
use crate::counter::{Kind, Metric, Metrics};
use crate::server::Server;

/// Sources of values, as a collector.
#[derive(Clone)]
pub(super) struct Collected(pub(super) Arc<Mutex<Watched>>);

impl fmt::Debug for Collected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collected")
    }
}

/// Labels of a value, by their names.
type Labels<'a> = Vec<(&'static str, &'a str)>;

/// Family of values: those of one name.
struct Family<'a> {
    name: &'static str,
    help: &'static str,
    kind: Kind,
    is_bytes: bool,
    values: Vec<(Labels<'a>, u64)>,
}

impl<'a> Family<'a> {
    fn gauge(name: &'static str, help: &'static str, value: usize) -> Self {
        Self { name, help, kind: Kind::Gauge, is_bytes: false, values: vec![(vec![], value as u64)] }
    }

    fn encode(self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Self { name, help, kind, is_bytes, values } = self;
        let metric_type = match kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
        };
        let unit = is_bytes.then_some(&Unit::Bytes);
        let mut family = encoder.encode_descriptor(name, help, unit, metric_type)?;
        for (labels, value) in values {
            if labels.is_empty() {
                write(&mut family, kind, value)?;
            } else {
                write(&mut family.encode_family(&labels)?, kind, value)?;
            }
        }
        Ok(())
    }
}

fn write(encoder: &mut MetricEncoder<'_>, kind: Kind, value: u64) -> fmt::Result {
    match kind {
        Kind::Counter => encoder.encode_counter::<NoLabelSet, _, u64>(&value, None),
        Kind::Gauge => encoder.encode_gauge(&i64::try_from(value).unwrap_or(i64::MAX)),
    }
}

/// Returns the metrics of things of a kind, which have labels of their own. Things with the same labels come together,
/// and are summed.
fn families<'a, T: Metrics>(things: impl IntoIterator<Item = (Labels<'a>, Vec<T>)>) -> Vec<Family<'a>> {
    let mut families: Vec<Family<'a>> = Vec::new();
    let places: Vec<usize> = T::METRICS.iter().map(|metric| place_of(&mut families, metric)).collect();
    for (labels, things) in things {
        for (metric, place) in T::METRICS.iter().zip(&places) {
            let sum = |element| things.iter().map(|thing| (metric.number)(thing, element)).sum();
            let values = &mut families[*place].values;
            match metric.label {
                None => values.push((labels.clone(), sum(0))),
                Some((label, names)) => values.extend(names.iter().enumerate().map(|(element, name)| {
                    (labels.iter().copied().chain([(label, *name)]).collect(), sum(element))
                })),
            }
        }
    }
    families
}

/// Returns the place of the family of a metric, which is added if it is the first of its name.
fn place_of<T>(families: &mut Vec<Family<'_>>, metric: &Metric<T>) -> usize {
    let Metric { name, help, kind, is_bytes, .. } = *metric;
    families.iter().position(|family| family.name == name).unwrap_or_else(|| {
        families.push(Family { name, help, kind, is_bytes, values: Vec::new() });
        families.len() - 1
    })
}

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let servers = &watched.servers;
        let sum = |number: fn(&Server) -> usize| servers.iter().map(number).sum();
        let mut all = families([(vec![], servers.iter().map(Server::counters).collect())]);
        all.push(Family::gauge(
            "open_connections",
            "Connections that are open",
            sum(Server::open_connections),
        ));
        all.push(Family::gauge("open_requests", "Requests that are not over", sum(Server::open_requests)));
        all.push(Family::gauge(
            "addresses",
            "Addresses whose rates are in use",
            sum(Server::known_addresses),
        ));
        let files = watched.files.iter();
        all.extend(families(
            files.map(|(name, files)| (vec![("directory", name.as_str())], vec![files.counters()])),
        ));
        #[cfg(feature = "compression")]
        if let Some(compression) = &watched.compression {
            all.extend(families([(vec![], vec![compression.counters()])]));
        }
        #[cfg(feature = "proxy")]
        let proxies: Vec<_> =
            watched.proxies.iter().map(|(name, proxy)| (name.as_str(), proxy.counters())).collect();
        #[cfg(feature = "proxy")]
        {
            let upstreams = proxies.iter().flat_map(|(name, counters)| {
                let labels = |uri| vec![("origin", *name), ("upstream", uri)];
                counters
                    .upstreams
                    .iter()
                    .map(move |upstream| (labels(upstream.uri.as_str()), vec![upstream.clone()]))
            });
            let upstreams = families(upstreams);
            all.extend(families(
                proxies.iter().map(|(name, of)| (vec![("origin", *name)], vec![of.clone()])),
            ));
            all.extend(upstreams);
        }
        all.extend(watched.others.iter().map(|other| {
            let values = (other.read)().into_iter().map(|(name, value)| (vec![(other.label, name)], value));
            let (name, help) = (other.name, other.help);
            Family { name, help, kind: Kind::Counter, is_bytes: false, values: values.collect() }
        }));
        all.into_iter().try_for_each(|family| family.encode(&mut encoder))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use marcato_units::Bytes;

    use super::*;
    use crate::counter::counters;
    use crate::counters::ServerCounters;
    use crate::files::FilesCounters;

    counters! {
        /// Counters of one desk.
        struct Desk;
        /// Counters that its clerks increase.
        struct Clerks;
        counted {
            /// Letters of two sizes.
            letters: [u64; 2] => counter("letters", "Letters", "size" = ["small", "large"]),
            /// Letters that were returned.
            returned: u64 => counter("letters", "", "size" = ["returned"]),
            /// Postage, which nobody sees.
            postage: Bytes,
        }
        present {
            /// Paper that is left.
            paper: Bytes => gauge("paper", "Paper that is left"),
        }
    }

    fn values<T: Metrics>(labels: Labels<'static>, things: Vec<T>) -> Vec<(&'static str, String, u64)> {
        let families = families([(labels, things)]).into_iter();
        let of = |family: Family<'static>| {
            let text =
                |labels: &Labels<'_>| labels.iter().map(|(_, value)| *value).collect::<Vec<_>>().join(" ");
            let values = family.values.into_iter();
            values.map(|(labels, number)| (family.name, text(&labels), number)).collect::<Vec<_>>()
        };
        families.flat_map(of).collect()
    }

    #[test]
    fn fields_of_one_name_share_a_family_and_elements_have_labels() {
        let clerks = Clerks::default();
        clerks.letters[0].add(3);
        clerks.letters[1].one();
        clerks.returned.add(2);
        clerks.postage.add(90);
        let desk = Desk { paper: Bytes::new(500), ..clerks.read() };
        assert_eq!(desk.postage, Bytes::new(90));
        let expected = [
            ("letters", "here small".to_owned(), 3),
            ("letters", "here large".to_owned(), 1),
            ("letters", "here returned".to_owned(), 2),
            ("paper", "here".to_owned(), 500),
        ];
        assert_eq!(values(vec![("desk", "here")], vec![desk.clone()]), expected);
        // Two desks without names of their own are summed.
        let both = values(vec![], vec![desk.clone(), desk]);
        assert_eq!(both.iter().map(|(_, _, number)| *number).collect::<Vec<_>>(), [6, 2, 4, 1000]);
    }

    /// Asserts that the first metric of each name has a help text, and no two have the same name and label.
    fn assert_distinct<T: Metrics>(names: &mut BTreeSet<&'static str>) {
        let mut values = BTreeSet::new();
        for metric in T::METRICS {
            let labels = metric.label.map_or(&[""][..], |(_, labels)| labels);
            assert!(labels.iter().all(|label| values.insert((metric.name, label))), "{}", metric.name);
            assert!(!names.insert(metric.name) || !metric.help.is_empty(), "{}", metric.name);
        }
    }

    /// Returns the names that `a_{b,c}_d` stands for.
    fn expand(code: &str) -> Vec<String> {
        let parts = code.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
        match parts {
            Some((before, (names, after))) => {
                names.split(',').map(|name| format!("{before}{name}{after}")).collect()
            }
            None => vec![code.to_owned()],
        }
    }

    #[test]
    fn every_metric_is_in_the_manual_with_a_name_of_its_own() {
        let mut names = BTreeSet::new();
        assert_distinct::<ServerCounters>(&mut names);
        assert_distinct::<FilesCounters>(&mut names);
        #[cfg(feature = "compression")]
        assert_distinct::<crate::compression::CompressionCounters>(&mut names);
        #[cfg(feature = "proxy")]
        assert_distinct::<crate::proxy::ProxyCounters>(&mut names);
        #[cfg(feature = "proxy")]
        assert_distinct::<crate::proxy::UpstreamState>(&mut names);
        let manual: Vec<String> =
            include_str!("../../../../docs/serve.md").split('`').flat_map(expand).collect();
        let absent: Vec<_> =
            names.into_iter().filter(|name| !manual.iter().any(|known| known.starts_with(name))).collect();
        assert_eq!(absent, [""; 0], "docs/serve.md has no line for these");
    }
}
