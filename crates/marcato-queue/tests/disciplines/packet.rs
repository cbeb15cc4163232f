//! Packets of tests.

/// Implements [`Packet`](marcato_queue::Packet) for a type with the fields `len`, `ecn` and `transport`, of
/// the high layer. The functions return its flow and that of the other direction.
macro_rules! packet {
    ($name:ty, $flow:expr, $reverse:expr) => {
        impl marcato_queue::Packet for $name {
            fn len(&self) -> marcato_units::Bytes {
                marcato_units::Bytes::new(self.len)
            }

            fn flow(&self) -> marcato_queue::FlowKey {
                let flow: fn(&Self) -> marcato_queue::FlowKey = $flow;
                flow(self)
            }

            fn reverse(&self) -> marcato_queue::FlowKey {
                let reverse: fn(&Self) -> marcato_queue::FlowKey = $reverse;
                reverse(self)
            }

            fn ecn(&self) -> marcato_wire::Ecn {
                self.ecn
            }

            fn mark_ce(&mut self) {
                assert!(self.ecn.is_capable());
                self.ecn = marcato_wire::Ecn::Ce;
            }

            fn layer(&self) -> marcato_units::Layer {
                marcato_units::Layer::High
            }

            fn transport(&self) -> marcato_wire::Transport {
                self.transport
            }
        }
    };
}
