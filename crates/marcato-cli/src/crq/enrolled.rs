//! Subscribers of a file with classes of a device.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use marcato_kernel::{Prefix, Subscriber};
use marcato_units::Rate;

use super::CrqError;
use super::list::{self, Listed};
use super::settings::Settings;
use crate::perf::quantity;

/// Subscribers of a device, with the addresses by which their packets are found.
pub(super) struct Enrolled {
    pub(super) subscribers: Vec<Subscriber>,
    pub(super) prefixes: Vec<(Prefix, u16)>,
    /// Facts that the operator should know.
    pub(super) notes: Vec<String>,
}

impl Enrolled {
    /// Reads the file of the subscribers of a device with this rate. Those that are known keep their classes.
    pub(super) fn read(
        path: &Path,
        settings: &Settings,
        rate: Rate,
        known: &[Subscriber],
    ) -> Result<Self, CrqError> {
        Ok(Self::new(list::read(path, settings.direction())?, rate, known))
    }

    fn new(mut listed: Vec<Listed>, rate: Rate, known: &[Subscriber]) -> Self {
        let notes = fit(&mut listed, rate);
        let handles: HashMap<&str, u16> = known.iter().map(|it| (it.name.as_str(), it.handle)).collect();
        // A class that goes keeps its handle until it is gone.
        let taken: BTreeSet<u16> = known.iter().map(|it| it.handle).collect();
        let mut free =
            (Subscriber::FIRST..=*Subscriber::HANDLES.end()).filter(|handle| !taken.contains(handle));
        let (mut subscribers, mut prefixes) = (Vec::new(), Vec::new());
        for Listed { name, min, max, prefixes: own } in listed {
            // There are more handles than twice as many subscribers as a file may have.
            let Some(handle) = handles.get(name.as_str()).copied().or_else(|| free.next()) else { continue };
            prefixes.extend(own.into_iter().map(|prefix| (prefix, handle)));
            subscribers.push(Subscriber { name, handle, min, max });
        }
        Self { subscribers, prefixes, notes }
    }

    /// Returns a line for each subscriber.
    pub(super) fn lines(&self) -> Vec<String> {
        self.subscribers.iter().map(line).collect()
    }
}

/// Returns a line about a subscriber.
pub(super) fn line(subscriber: &Subscriber) -> String {
    let Subscriber { name, handle, min, max } = subscriber;
    let [min, max] = [*min, *max].map(quantity::shown_rate);
    format!("let `{name}` have the class c4:{handle:x}, with {min} to {max}")
}

/// Lowers rates that the device does not have: HTB gives every class its `rate`, whatever that of the device.
fn fit(listed: &mut [Listed], rate: Rate) -> Vec<String> {
    let mut notes = Vec::new();
    let above = listed.iter_mut().filter(|it| it.max > rate).map(|it| it.max = rate).count();
    if above > 0 {
        notes.push(format!(
            "{above} subscribers have more than the rate of the device, which they share with others"
        ));
        listed.iter_mut().for_each(|it| it.min = it.min.min(it.max));
    }
    let sum: u128 = listed.iter().map(|it| u128::from(it.min.as_bps())).sum();
    let whole = u128::from(rate.as_bps());
    if sum > whole {
        for it in listed.iter_mut() {
            let part = u128::from(it.min.as_bps()) * whole / sum;
            it.min = Rate::from_bps(u64::try_from(part).unwrap_or(u64::MAX));
        }
        notes.push(format!(
            "the least rates together are {} Mbit/s, more than the rate of the device: each is lowered to {} %",
            sum / 1_000_000,
            100 * whole / sum
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str, min: u64, max: u64) -> Listed {
        let (min, max) = (Rate::from_mbps(min), Rate::from_mbps(max));
        Listed { name: name.to_owned(), min, max, prefixes: vec!["192.0.2.0/24".parse().unwrap()] }
    }

    #[test]
    fn who_is_known_keeps_the_class_and_others_get_free_ones() {
        let first =
            Enrolled::new(vec![listed("anna", 1, 5), listed("berta", 1, 5)], Rate::from_mbps(100), &[]);
        let handles = |enrolled: &Enrolled| -> Vec<(String, u16)> {
            enrolled.subscribers.iter().map(|it| (it.name.clone(), it.handle)).collect()
        };
        assert_eq!(handles(&first), [("anna".to_owned(), 0x1000), ("berta".to_owned(), 0x1001)]);
        // The class of one who leaves is there until the new addresses count.
        let again = vec![listed("carl", 1, 5), listed("berta", 1, 7)];
        let second = Enrolled::new(again, Rate::from_mbps(100), &first.subscribers);
        assert_eq!(handles(&second), [("carl".to_owned(), 0x1002), ("berta".to_owned(), 0x1001)]);
        assert_eq!(second.prefixes[1].1, 0x1001);
        assert!(second.notes.is_empty());
        assert_eq!(
            line(&second.subscribers[1]),
            "let `berta` have the class c4:1001, with 1Mbit/s to 7Mbit/s"
        );
    }

    #[test]
    fn least_rates_are_lowered_to_what_the_device_has() {
        let many = vec![listed("anna", 60, 80), listed("berta", 90, 200)];
        let Enrolled { subscribers, notes, .. } = Enrolled::new(many, Rate::from_mbps(100), &[]);
        let rates: Vec<_> = subscribers.iter().map(|it| (it.min, it.max)).collect();
        let mbps = Rate::from_mbps;
        assert_eq!(rates, [(mbps(40), mbps(80)), (mbps(60), mbps(100))]);
        assert!(notes[0].starts_with("1 subscribers have more"), "{notes:?}");
        assert!(notes[1].contains("are 150 Mbit/s") && notes[1].contains("lowered to 66 %"), "{notes:?}");
        let few = Enrolled::new(vec![listed("anna", 60, 80)], Rate::from_mbps(100), &[]);
        assert!(few.notes.is_empty() && few.subscribers[0].min == mbps(60));
    }
}
