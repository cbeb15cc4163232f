//! Loaded programs.

use std::io::ErrorKind;

use aya::maps::Array;
use aya::programs::{ProgramError, SchedClassifier, TestRun, TestRunOptions, TestRunResult};
use aya::{Ebpf, EbpfLoader};
use marcato_queue::trap::Signal;
use marcato_units::{Duration, Time};

use crate::codel::CodelText;
use crate::counters::{Counter, Tally};
use crate::error::LoadError;
use crate::layout::{Configuration, FlowId, ReadPacket};
use crate::maps::{self, Maps};
use crate::state::FlowState;
use crate::{OBJECT, layout};

/// Direction in which a packet passes a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The packet leaves: the flow's own direction.
    Egress,
    /// The packet enters: the flow's other direction.
    Ingress,
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
#[expect(missing_debug_implementations, reason = "maps of the loader have none")]
pub struct Programs {
    ebpf: Ebpf,
    maps: Maps,
}

/// Loads the object with room for so many flows and subscribers.
pub(crate) fn load(flows: u32, subscribers: u32) -> Result<Ebpf, LoadError> {
    if OBJECT.is_empty() {
        return Err(LoadError::NotBuilt);
    }
    Ok(EbpfLoader::new()
        .map_max_entries(maps::FLOWS, flows)
        .map_max_entries(maps::SUBSCRIBERS, subscribers)
        .load(OBJECT)?)
}

/// Loads a classifier of the object into the kernel.
pub(crate) fn load_classifier<'a>(
    ebpf: &'a mut Ebpf,
    name: &'static str,
) -> Result<&'a mut SchedClassifier, LoadError> {
    let failed = |source| LoadError::Program { name, source };
    let program = ebpf.program_mut(name).ok_or(LoadError::Missing(name))?;
    let program: &mut SchedClassifier = program.try_into().map_err(failed)?;
    verified(|| program.load()).map_err(failed)?;
    Ok(program)
}

/// Attempts to load a program whose verification signals interrupt.
const ATTEMPTS: u32 = 10;

/// Loads a program, again if a signal has interrupted its verification: the kernel then returns `EAGAIN`, and expects
/// another attempt (`bpf_prog_load` of libbpf makes five).
pub(crate) fn verified(mut load: impl FnMut() -> Result<(), ProgramError>) -> Result<(), ProgramError> {
    for _ in 1..ATTEMPTS {
        match load() {
            Err(ProgramError::LoadError { io_error, .. } | ProgramError::IOError(io_error))
                if io_error.kind() == ErrorKind::WouldBlock => {}
            done => return done,
        }
    }
    load()
}

impl Programs {
    /// Loads the programs with room for so many flows.
    ///
    /// # Errors
    /// [`LoadError`] if this build has none, or the kernel refuses them.
    pub fn load(configuration: &Configuration, flows: u32) -> Result<Self, LoadError> {
        let mut ebpf = load(flows, 1)?;
        let mut maps = Maps::take(&mut ebpf)?;
        maps.configure(configuration, CodelText::default())?;
        Ok(Self { ebpf, maps })
    }

    /// Changes the configuration. States of flows stay as they are.
    ///
    /// # Errors
    /// [`LoadError`] if the kernel refuses it.
    pub fn configure(&mut self, configuration: &Configuration) -> Result<(), LoadError> {
        self.maps.configure(configuration, CodelText::default())
    }

    /// State of a flow, if it has one.
    ///
    /// # Errors
    /// [`LoadError`] if the map cannot be read.
    pub fn flow(&self, flow: &FlowId) -> Result<Option<FlowState>, LoadError> {
        self.maps.flow(flow)
    }

    /// Number of flows that have a state.
    pub fn flow_count(&self) -> usize {
        self.maps.flows().count()
    }

    /// Sum of a counter over all CPUs.
    ///
    /// # Errors
    /// [`LoadError`] if the map cannot be read.
    pub fn counter(&self, counter: Counter) -> Result<Tally, LoadError> {
        self.maps.counter(counter)
    }

    /// Loads the programs that run without a device. The others need the kernel's tracepoints.
    ///
    /// # Errors
    /// [`LoadError`] if the kernel refuses one.
    pub fn load_tests(&mut self) -> Result<(), LoadError> {
        TESTS.into_iter().try_for_each(|name| load_classifier(&mut self.ebpf, name).map(drop))
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
        let map = Array::<_, [u8; ReadPacket::LEN]>::try_from(map).map_err(maps::failed(NAME))?;
        Ok(Some(ReadPacket::from_bytes(&map.get(&0, 0).map_err(maps::failed(NAME))?)))
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

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn refused(kind: ErrorKind) -> Result<(), ProgramError> {
        Err(io::Error::from(kind).into())
    }

    /// Loads a program that the kernel answers in this way; returns whether it was loaded, and the attempts.
    fn load(mut answer: impl FnMut(u32) -> Result<(), ProgramError>) -> (bool, u32) {
        let mut attempts = 0;
        let loaded = verified(|| {
            attempts += 1;
            answer(attempts)
        });
        (loaded.is_ok(), attempts)
    }

    #[test]
    fn a_verification_that_signals_interrupt_is_tried_again() {
        let interrupted =
            |times| move |attempt| if attempt <= times { refused(ErrorKind::WouldBlock) } else { Ok(()) };
        assert_eq!(load(interrupted(0)), (true, 1));
        assert_eq!(load(interrupted(3)), (true, 4));
        assert_eq!(load(interrupted(u32::MAX)), (false, ATTEMPTS));
        // A program that the verifier refuses stays refused.
        assert_eq!(load(|_| refused(ErrorKind::PermissionDenied)), (false, 1));
    }
}
