//! A firmware image that holds only a Conductor for 16 messages, or nothing without the feature
//! `conductor`: the difference is the Conductor's cost. `measure` builds both and prints it.
//!
//! Every operation is exported with arguments that only the caller knows, so that the optimiser can
//! drop none.
#![no_std]

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

#[cfg(feature = "conductor")]
#[expect(unsafe_code, reason = "the linker finds by name what it has to keep: #[unsafe(no_mangle)]")]
mod device {
    use core::time::Duration;

    use marcato_sched::conductor::{
        CancelOutcome, Conductor, Config, Debt, Fixed, Grant, Message, MessageId, ShedPolicy, Shedding,
    };
    use marcato_units::{Bytes, Priority, Time};

    /// A device's Conductor in memory.
    pub type Device = Conductor<Fixed<16>>;

    // A static of the Conductor's size, so that its memory shows up in .bss. SIZE is read by
    // `measure`.
    #[unsafe(no_mangle)]
    pub static CONDUCTOR_BYTES: [core::sync::atomic::AtomicU8; size_of::<Device>()] =
        [const { core::sync::atomic::AtomicU8::new(0) }; size_of::<Device>()];

    #[unsafe(no_mangle)]
    pub fn conductor_new(place: &mut Option<Device>, watchful: bool) {
        let shedding = watchful.then(Shedding::default);
        let config = Config { shedding, ..Config::with_debt(Debt::marcato()) };
        *place = Conductor::with_store(config, Fixed::new()).ok();
    }

    #[unsafe(no_mangle)]
    pub fn conductor_offer(
        device: &mut Device,
        now: u64,
        len: u32,
        level: Priority,
        ms: u32,
    ) -> Option<MessageId> {
        let message = Message::new(Bytes::from(len), level).with_lifetime(Duration::from_millis(ms.into()));
        device.offer(Time::from_nanos(now), message).ok()
    }

    #[unsafe(no_mangle)]
    pub fn conductor_grant(device: &mut Device, now: u64, budget: u32) -> Option<Grant> {
        device.grant(Time::from_nanos(now), Bytes::from(budget))
    }

    #[unsafe(no_mangle)]
    pub fn conductor_refuse(device: &mut Device, grant: &Grant, taken: u32) -> bool {
        device.refuse(*grant, Bytes::from(taken)).is_ok()
    }

    #[unsafe(no_mangle)]
    pub fn conductor_reprioritise(device: &mut Device, id: MessageId, level: Priority) -> bool {
        device.reprioritise(id, level).is_ok()
    }

    #[unsafe(no_mangle)]
    pub fn conductor_cancel(device: &mut Device, id: MessageId) -> Option<CancelOutcome> {
        device.cancel(id).ok()
    }

    #[unsafe(no_mangle)]
    pub fn conductor_discard(device: &mut Device, level: Priority) -> u64 {
        device.discard_less_urgent_than(level).bytes.get()
    }

    #[unsafe(no_mangle)]
    pub fn conductor_shed(device: &mut Device, now: u64, policy: &ShedPolicy) -> u64 {
        device.shed(Time::from_nanos(now), policy).bytes.get()
    }
}
