//! A flow in the kernel and in user space, compared after every packet.

use marcato_kernel::{Configuration, FlowId, Pass, Programs};
use marcato_queue::Admission;
use marcato_queue::trap::{CycleId, Signal, Trap, TrapKind, Verdict};
use marcato_units::Time;
use marcato_wire::{FlowTuple, QuicHeader, Transport};

use super::build::{Frame, Wrapping, frame};

pub(super) struct Pair<'a> {
    programs: &'a Programs,
    config: Configuration,
    flow: FlowTuple,
    wrapping: Wrapping,
    pub(super) trap: Option<Trap>,
    /// Queue of the flow: true for the responsive one, `None` before its first packet.
    responsive: Option<bool>,
    /// Cycles of the packets that left, in user space and in the kernel.
    cycle_ids: Vec<(CycleId, u8)>,
    last: Vec<u8>,
    pub(super) packets: u64,
}

impl<'a> Pair<'a> {
    pub(super) fn new(
        programs: &'a Programs,
        config: Configuration,
        flow: FlowTuple,
        wrapping: Wrapping,
    ) -> Self {
        let (cycle_ids, last) = (Vec::new(), Vec::new());
        Self { programs, config, flow, wrapping, trap: None, responsive: None, cycle_ids, last, packets: 0 }
    }

    pub(super) fn pass(&mut self, pass: Pass, now: Time, packet: &Transport) {
        let flow = if pass == Pass::Egress { self.flow } else { self.flow.reversed() };
        let bytes = frame(&Frame { flow: &flow, transport: packet, wrapping: self.wrapping });
        self.pass_frame(pass, now, packet, bytes);
    }

    /// Passes a frame with this transport header.
    pub(super) fn pass_frame(&mut self, pass: Pass, now: Time, packet: &Transport, bytes: Vec<u8>) {
        let tag = self.programs.pass(pass, now, &bytes).unwrap();
        self.packets += 1;
        // QUIC has a state from its first short header on, and the other direction adds nothing to it.
        let is_long = matches!(packet, Transport::Udp { quic: Some(QuicHeader::Long { .. }), .. });
        let is_udp = matches!(packet, Transport::Udp { .. });
        if is_udp && pass == Pass::Ingress || is_long && self.trap.is_none() {
            return;
        }
        let kind = if matches!(packet, Transport::Tcp(_)) { TrapKind::Tcp } else { TrapKind::Spin };
        let trap = self.trap.get_or_insert(Trap::new(kind));
        if pass == Pass::Egress {
            trap.forward(&self.config.trap, now, packet);
            let [cycle, _, _, _] = tag.to_le_bytes();
            self.cycle_ids.push((trap.cycle_id(), cycle));
            let [loss, ecn] = Signal::ALL.map(|signal| trap.verdict(signal) == Verdict::Responsive);
            let responsive = match self.config.admission {
                Admission::Loss => loss,
                Admission::Ecn => ecn,
                Admission::Any => loss || ecn,
            };
            if self.responsive.replace(responsive).is_some_and(|before| before != responsive) {
                trap.changed_queue(&self.config.trap);
            }
            self.last = bytes;
        } else {
            trap.backward(&self.config.trap, now, packet);
        }
        self.compare();
    }

    /// The queue gives a signal by the packet that left so many before the last.
    pub(super) fn signal(&mut self, signal: Signal, back: usize) {
        let Some(trap) = &mut self.trap else { return };
        let Some(&(ours, theirs)) = self.cycle_ids.iter().rev().nth(back) else { return };
        trap.signal(&self.config.trap, signal, ours);
        self.programs.signal(signal, theirs, &self.last).unwrap();
    }

    fn compare(&self) {
        let Some(trap) = &self.trap else { return };
        let mut ours = Vec::new();
        trap.inspect(&mut |name, number| ours.push((name, number)));
        let theirs = self.programs.flow(&FlowId::new(&self.flow)).unwrap();
        let theirs = theirs.unwrap_or_else(|| panic!("the kernel has no state of {:?}", self.flow));
        if ours != theirs.trap {
            let mut differences = String::new();
            for (ours, theirs) in ours.iter().zip(&theirs.trap).filter(|(ours, theirs)| ours != theirs) {
                differences += &format!("{}: {}, in the kernel {} {}\n", ours.0, ours.1, theirs.0, theirs.1);
            }
            panic!("packet {} of {:?} with {:?}\n{differences}", self.packets, self.flow, self.config);
        }
    }
}
