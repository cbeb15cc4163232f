//! Loaded programs.

use aya::maps::{Array, HashMap, MapData, PerCpuArray};
use aya::programs::{SchedClassifier, TestRun, TestRunOptions, TestRunResult};
use aya::{Ebpf, EbpfLoader};
use marcato_queue::trap::Signal;
use marcato_units::{Duration, Time};

use crate::counters::{Counter, Tally};
use crate::error::LoadError;
use crate::layout::{Configuration, FlowId, ReadPacket};
use crate::state::{self, FlowState};
use crate::{OBJECT, layout};

/// Direction in which a packet passes a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The packet leaves: the flow's own direction.
    Egress,
    /// The packet enters: the flow's other direction.
    Ingress,
}

/// Number of bytes of `struct tally` of `bpf/counters.h`.
pub(crate) const TALLY: usize = 16;

/// Sum over all CPUs.
pub(crate) fn sum<'a>(counts: impl Iterator<Item = &'a [u8; TALLY]>) -> Tally {
    counts.fold(Tally::default(), |sum, both| {
        let [packets, bytes] = [0, 8].map(|at| {
            let mut word = [0; 8];
            word.copy_from_slice(&both[at..at + 8]);
            u64::from_ne_bytes(word)
        });
        Tally { packets: sum.packets + packets, bytes: sum.bytes + bytes }
    })
}

/// Names of the programs that run without a device.
const TESTS: [&str; 4] = ["crq_test_egress", "crq_test_ingress", "crq_test_read", "crq_test_signal"];

/// Program of the tests for a direction.
const fn test_of(pass: Pass) -> &'static str {
    match pass {
        Pass::Egress => TESTS[0],
        Pass::Ingress => TESTS[1],
    }
}

/// Programs and maps in the kernel, attached to nothing.
///
/// They leave the kernel with this value.
#[derive(Debug)]
pub struct Programs {
    ebpf: Ebpf,
}

impl Programs {
    /// Loads the programs with room for so many flows.
    ///
    /// # Errors
    /// [`LoadError`] if this build has none, or the kernel refuses them.
    pub fn load(configuration: &Configuration, flows: u32) -> Result<Self, LoadError> {
        if OBJECT.is_empty() {
            return Err(LoadError::NotBuilt);
        }
        let ebpf = EbpfLoader::new().map_max_entries("flows", flows).load(OBJECT)?;
        let mut programs = Self { ebpf };
        programs.configure(configuration)?;
        Ok(programs)
    }

    /// Changes the configuration. States of flows stay as they are.
    ///
    /// # Errors
    /// [`LoadError`] if the kernel refuses it.
    pub fn configure(&mut self, configuration: &Configuration) -> Result<(), LoadError> {
        const NAME: &str = "configuration";
        let map = self.ebpf.map_mut(NAME).ok_or(LoadError::Missing(NAME))?;
        let failed = |source| LoadError::Map { name: NAME, source };
        let mut map = Array::<_, [u8; Configuration::LEN]>::try_from(map).map_err(failed)?;
        map.set(0, configuration.to_bytes(), 0).map_err(failed)
    }

    /// State of a flow, if it has one.
    ///
    /// # Errors
    /// [`LoadError`] if the map cannot be read.
    pub fn flow(&self, flow: &FlowId) -> Result<Option<FlowState>, LoadError> {
        match self.flows()?.get(&flow.0, 0) {
            Ok(bytes) => Ok(Some(FlowState::from_bytes(&bytes))),
            Err(aya::maps::MapError::KeyNotFound) => Ok(None),
            Err(source) => Err(LoadError::Map { name: "flows", source }),
        }
    }

    /// Number of flows that have a state.
    ///
    /// # Errors
    /// [`LoadError`] if the map cannot be read.
    pub fn flow_count(&self) -> Result<usize, LoadError> {
        Ok(self.flows()?.keys().filter(Result::is_ok).count())
    }

    /// Sum of a counter over all CPUs.
    ///
    /// # Errors
    /// [`LoadError`] if the map cannot be read.
    pub fn counter(&self, counter: Counter) -> Result<Tally, LoadError> {
        const NAME: &str = "counters";
        let map = self.ebpf.map(NAME).ok_or(LoadError::Missing(NAME))?;
        let failed = |source| LoadError::Map { name: NAME, source };
        let map = PerCpuArray::<_, [u8; TALLY]>::try_from(map).map_err(failed)?;
        Ok(sum(map.get(&(counter as u32), 0).map_err(failed)?.iter()))
    }

    fn flows(&self) -> Result<HashMap<&MapData, [u8; FlowId::LEN], [u8; state::LEN]>, LoadError> {
        const NAME: &str = "flows";
        let map = self.ebpf.map(NAME).ok_or(LoadError::Missing(NAME))?;
        HashMap::try_from(map).map_err(|source| LoadError::Map { name: NAME, source })
    }

    /// Loads the programs that run without a device. The others need the kernel's tracepoints.
    ///
    /// # Errors
    /// [`LoadError`] if the kernel refuses one.
    pub fn load_tests(&mut self) -> Result<(), LoadError> {
        for name in TESTS {
            let failed = |source| LoadError::Program { name, source };
            self.classifier_mut(name)?.load().map_err(failed)?;
        }
        Ok(())
    }

    fn classifier_mut(&mut self, name: &'static str) -> Result<&mut SchedClassifier, LoadError> {
        let program = self.ebpf.program_mut(name).ok_or(LoadError::Missing(name))?;
        program.try_into().map_err(|source| LoadError::Program { name, source })
    }

    /// Runs a program of the tests on a packet.
    fn run(&self, name: &'static str, packet: &[u8], context: &layout::Context) -> Result<u32, LoadError> {
        Ok(self.repeat(name, packet, context, 1)?.return_value)
    }

    /// Runs a program of the tests so many times on a packet.
    fn repeat(
        &self,
        name: &'static str,
        packet: &[u8],
        context: &layout::Context,
        repeat: u32,
    ) -> Result<TestRunResult, LoadError> {
        let program = self.ebpf.program(name).ok_or(LoadError::Missing(name))?;
        let failed = |source| LoadError::Program { name, source };
        let program: &SchedClassifier = program.try_into().map_err(failed)?;
        let context = context.to_bytes();
        let mut after = packet.to_vec();
        let options = TestRunOptions {
            data_in: Some(packet),
            data_out: Some(&mut after),
            ctx_in: Some(&context),
            repeat,
            ..TestRunOptions::default()
        };
        program.test_run(options).map_err(failed)
    }

    /// Mean time that the kernel takes for a packet, passed so many times at `now`. Needs
    /// [`load_tests`](Self::load_tests).
    ///
    /// # Errors
    /// [`LoadError`] if the kernel refuses to run the program.
    pub fn time(&self, pass: Pass, now: Time, packet: &[u8], repeat: u32) -> Result<Duration, LoadError> {
        let context = layout::Context { time: now.as_nanos(), cb: [0; 2] };
        Ok(self.repeat(test_of(pass), packet, &context, repeat)?.duration)
    }

    /// Passes a packet at `now`, and returns its tag: the number of its cycle in the lowest byte.
    /// Needs [`load_tests`](Self::load_tests).
    ///
    /// # Errors
    /// [`LoadError`] if the kernel refuses to run the program.
    pub fn pass(&self, pass: Pass, now: Time, packet: &[u8]) -> Result<u32, LoadError> {
        self.run(test_of(pass), packet, &layout::Context { time: now.as_nanos(), cb: [0; 2] })
    }

    /// Fields of a packet as the kernel's programs read it; `None` if it is no readable IP packet.
    /// Needs [`load_tests`](Self::load_tests).
    ///
    /// # Errors
    /// [`LoadError`] if the kernel refuses to run the program.
    pub fn read(&self, packet: &[u8]) -> Result<Option<ReadPacket>, LoadError> {
        const NAME: &str = "test_packet";
        if self.run(TESTS[2], packet, &layout::Context::default())? == 0 {
            return Ok(None);
        }
        let map = self.ebpf.map(NAME).ok_or(LoadError::Missing(NAME))?;
        let failed = |source| LoadError::Map { name: NAME, source };
        let map = Array::<_, [u8; ReadPacket::LEN]>::try_from(map).map_err(failed)?;
        Ok(Some(ReadPacket::from_bytes(&map.get(&0, 0).map_err(failed)?)))
    }

    /// Books a signal by a packet of the flow of `packet`, that came in the cycle `came`. Needs
    /// [`load_tests`](Self::load_tests).
    ///
    /// # Errors
    /// [`LoadError`] if the kernel refuses to run the program.
    pub fn signal(&self, signal: Signal, came: u8, packet: &[u8]) -> Result<(), LoadError> {
        let context = layout::Context { time: 0, cb: [signal as u32, came.into()] };
        self.run(TESTS[3], packet, &context).map(drop)
    }
}
