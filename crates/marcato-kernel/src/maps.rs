//! Maps that the programs share with user space.

use std::path::Path;

use aya::Ebpf;
use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray};

use crate::codel::CodelText;
use crate::counters::{Counter, Tally};
use crate::error::LoadError;
use crate::layout::{Configuration, FlowId};
use crate::state::{self, FlowState};
use crate::subscribers::{Prefix, Subscriber};

/// Number of bytes of `struct tally` of `bpf/counters.h`.
const TALLY: usize = 16;
/// Number of bytes of `struct tallies`: all counters of a CPU.
const TALLIES: usize = TALLY * Counter::ALL.len();

pub(crate) const FLOWS: &str = "flows";
const COUNTERS: &str = "counters";
const CONFIGURATION: &str = "configuration";
const NOTE: &str = "note";
const PREFIXES: &str = "prefixes";
pub(crate) const SUBSCRIBERS: &str = "subscribers";
/// Number of bytes of `struct note` of `bpf/config.h`.
const NOTE_LEN: usize = 16_384;

/// Flows, counters and configuration of a set of programs.
pub(crate) struct Maps {
    flows: HashMap<MapData, [u8; FlowId::LEN], [u8; state::LEN]>,
    counters: PerCpuArray<MapData, [u8; TALLIES]>,
    configuration: Array<MapData, [u8; Configuration::LEN]>,
    note: Array<MapData, [u8; NOTE_LEN]>,
    prefixes: LpmTrie<MapData, [u8; PREFIX_LEN], u32>,
    subscribers: HashMap<MapData, u32, [u8; Subscriber::LEN]>,
}

/// Bytes of a prefix in the trie: the generation, and an address.
const PREFIX_LEN: usize = 20;

/// Key of a prefix of a generation.
fn prefix_key(generation: u32, prefix: &Prefix) -> Key<[u8; PREFIX_LEN]> {
    let (address, bits) = prefix.bits();
    let mut bytes = [0; PREFIX_LEN];
    bytes[..4].copy_from_slice(&generation.to_ne_bytes());
    bytes[4..].copy_from_slice(&address);
    Key::new(32 + bits, bytes)
}

impl Maps {
    /// Names in the object.
    pub(crate) const NAMES: [&str; 6] = [FLOWS, COUNTERS, CONFIGURATION, NOTE, PREFIXES, SUBSCRIBERS];

    /// Takes the maps of a loaded object.
    pub(crate) fn take(ebpf: &mut Ebpf) -> Result<Self, LoadError> {
        Self::from(|name| ebpf.take_map(name).ok_or(LoadError::Missing(name)))
    }

    /// Opens the maps that are pinned in a directory.
    pub(crate) fn open(directory: &Path) -> Result<Self, LoadError> {
        Self::from(|name| {
            let data = MapData::from_pin(directory.join(name)).map_err(failed(name))?;
            Map::from_map_data(data).map_err(failed(name))
        })
    }

    fn from(mut map: impl FnMut(&'static str) -> Result<Map, LoadError>) -> Result<Self, LoadError> {
        Ok(Self {
            flows: map(FLOWS)?.try_into().map_err(failed(FLOWS))?,
            counters: map(COUNTERS)?.try_into().map_err(failed(COUNTERS))?,
            configuration: map(CONFIGURATION)?.try_into().map_err(failed(CONFIGURATION))?,
            note: map(NOTE)?.try_into().map_err(failed(NOTE))?,
            prefixes: map(PREFIXES)?.try_into().map_err(failed(PREFIXES))?,
            subscribers: map(SUBSCRIBERS)?.try_into().map_err(failed(SUBSCRIBERS))?,
        })
    }

    pub(crate) fn configure(
        &mut self,
        configuration: &Configuration,
        codel: CodelText,
    ) -> Result<(), LoadError> {
        let bytes = Configuration::with_generation(configuration.to_bytes(codel), self.generation()?);
        self.configuration.set(0, bytes, 0).map_err(failed(CONFIGURATION))
    }

    /// Generation of the prefixes that counts.
    fn generation(&self) -> Result<u32, LoadError> {
        Ok(Configuration::generation_in(&self.configuration.get(&0, 0).map_err(failed(CONFIGURATION))?))
    }

    /// Lets other prefixes count, all at once. After an error, those before count.
    pub(crate) fn set_prefixes(&mut self, prefixes: &[(Prefix, u16)]) -> Result<(), LoadError> {
        let generation = self.generation()?.wrapping_add(1);
        // What a process that was killed meanwhile has left of this generation counts for nothing.
        self.keep_prefixes(generation.wrapping_sub(1))?;
        let put = prefixes.iter().try_for_each(|(prefix, handle)| {
            self.prefixes.insert(&prefix_key(generation, prefix), u32::from(*handle), 0)
        });
        if let Err(error) = put {
            // The first error is the one to tell.
            let _ = self.keep_prefixes(generation.wrapping_sub(1));
            return Err(failed(PREFIXES)(error));
        }
        let bytes = self.configuration.get(&0, 0).map_err(failed(CONFIGURATION))?;
        let bytes = Configuration::with_generation(bytes, generation);
        self.configuration.set(0, bytes, 0).map_err(failed(CONFIGURATION))?;
        self.keep_prefixes(generation)
    }

    /// Removes the prefixes of other generations.
    fn keep_prefixes(&mut self, generation: u32) -> Result<(), LoadError> {
        let keys: Result<Vec<_>, _> = self.prefixes.keys().collect();
        for key in keys.map_err(failed(PREFIXES))? {
            if key.data()[..4] != generation.to_ne_bytes() {
                self.prefixes.remove(&key).map_err(failed(PREFIXES))?;
            }
        }
        Ok(())
    }

    /// Subscribers by handle.
    pub(crate) fn subscribers(&self) -> Result<Vec<Subscriber>, LoadError> {
        let entry = |(handle, bytes): (u32, [u8; Subscriber::LEN])| {
            Subscriber::from_bytes(u16::try_from(handle).unwrap_or(u16::MAX), &bytes)
        };
        let all: Result<Vec<Subscriber>, _> = self.subscribers.iter().map(|it| it.map(entry)).collect();
        let mut all = all.map_err(failed(SUBSCRIBERS))?;
        all.sort_by_key(|subscriber| subscriber.handle);
        Ok(all)
    }

    pub(crate) fn put_subscribers(&mut self, subscribers: &[Subscriber]) -> Result<(), LoadError> {
        subscribers.iter().try_for_each(|subscriber| {
            let bytes = subscriber.to_bytes();
            self.subscribers.insert(u32::from(subscriber.handle), bytes, 0).map_err(failed(SUBSCRIBERS))
        })
    }

    pub(crate) fn remove_subscribers(&mut self, handles: &[u16]) -> Result<(), LoadError> {
        handles.iter().try_for_each(|handle| match self.subscribers.remove(&u32::from(*handle)) {
            Ok(()) | Err(MapError::KeyNotFound) => Ok(()),
            Err(error) => Err(failed(SUBSCRIBERS)(error)),
        })
    }

    /// Number of the reverse device, if the configuration has one.
    pub(crate) fn reverse(&self) -> Option<u32> {
        Configuration::reverse_in(&self.configuration.get(&0, 0).ok()?)
    }

    pub(crate) fn set_note(&mut self, text: &str) -> Result<(), LoadError> {
        let mut bytes = [0; NOTE_LEN];
        let room = bytes.get_mut(..text.len()).ok_or(LoadError::Note { most: NOTE_LEN })?;
        room.copy_from_slice(text.as_bytes());
        self.note.set(0, bytes, 0).map_err(failed(NOTE))
    }

    pub(crate) fn note(&self) -> Result<String, LoadError> {
        let bytes = self.note.get(&0, 0).map_err(failed(NOTE))?;
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    pub(crate) fn flow(&self, flow: &FlowId) -> Result<Option<FlowState>, LoadError> {
        match self.flows.get(&flow.0, 0) {
            Ok(bytes) => Ok(Some(FlowState::from_bytes(&bytes))),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(source) => Err(failed(FLOWS)(source)),
        }
    }

    pub(crate) fn flows(&self) -> impl Iterator<Item = (FlowId, FlowState)> {
        self.flows
            .iter()
            .filter_map(Result::ok)
            .map(|(id, state)| (FlowId(id), FlowState::from_bytes(&state)))
    }

    /// Sum of a counter over all CPUs.
    pub(crate) fn counter(&self, counter: Counter) -> Result<Tally, LoadError> {
        let counts = self.counters.get(&0, 0).map_err(failed(COUNTERS))?;
        let first = TALLY * counter as usize;
        Ok(counts.iter().fold(Tally::default(), |sum, all| {
            let [packets, bytes] = [first, first + 8].map(|at| {
                let mut word = [0; 8];
                word.copy_from_slice(&all[at..at + 8]);
                u64::from_ne_bytes(word)
            });
            Tally { packets: sum.packets + packets, bytes: sum.bytes + bytes }
        }))
    }
}

/// Error of the map `name`.
pub(crate) fn failed(name: &'static str) -> impl Fn(MapError) -> LoadError {
    move |source| LoadError::Map { name, source }
}
