//! Keys of each table, as declared where the table is read. `docs/scenarios.md` repeats their rows
//! word for word, which a test holds.

use marcato_document::Keyed;
pub use marcato_document::schema::{Entry, Key, Schema, Usual};

use crate::amount::Transmitter;
use crate::claim::CLAIM;
use crate::figure::{AXIS, FIGURE, SERIES};
use crate::flow::{Messages, RequestResponse, TcpFlow, TcpProcess, UdpFlow};
use crate::grid::GRID;
use crate::kinded::Kinded;
use crate::link::{CHANGE, Direction, Exponential, JitterKind, LINK, Loss, Normal, Uniform};
use crate::queue::Queue;
use crate::quic::{Budget, Controller, Path, Quic, Scheduler};
use crate::read::ROOT;
use crate::read::record::RECORD;
use crate::read::traffic::{
    ConstantPause, ConstantSize, ExponentialPause, ExponentialSize, ListedSizes, LogNormalSize, ParetoSize,
};
use crate::tcp::{Congestion, DelayedAck, GROWTH_BY_ACKS, GrowthByBytes, LowLayer, NO_LOW_LAYER, Tcp};
use crate::topology::{ASYMMETRIC, DUMBBELL, MULTIPATH, MULTIPATH_PATH, PARKING_LOT};
use crate::traffic::{Bulk, Coupling, Message, Source};

/// Tables of the format that belong to no enum in [`tables`].
const PLAIN: &[Schema] = &[
    ROOT,
    LINK,
    Direction::SCHEMA,
    CHANGE,
    JitterKind::PLAIN,
    Uniform::SCHEMA,
    Normal::SCHEMA,
    Exponential::SCHEMA,
    DUMBBELL,
    PARKING_LOT,
    MULTIPATH,
    MULTIPATH_PATH,
    ASYMMETRIC,
    TcpFlow::SCHEMA,
    UdpFlow::SCHEMA,
    TcpProcess::SCHEMA,
    RequestResponse::SCHEMA,
    Messages::SCHEMA,
    Quic::SCHEMA,
    Path::SCHEMA,
    Budget::SCHEMA,
    Message::SCHEMA,
    Source::SCHEMA,
    Bulk::SCHEMA,
    ConstantSize::SCHEMA,
    ExponentialSize::SCHEMA,
    ParetoSize::SCHEMA,
    LogNormalSize::SCHEMA,
    ListedSizes::SCHEMA,
    ConstantPause::SCHEMA,
    ExponentialPause::SCHEMA,
    Tcp::SCHEMA,
    GrowthByBytes::SCHEMA,
    GROWTH_BY_ACKS,
    NO_LOW_LAYER,
    <LowLayer as Keyed<LowLayer>>::SCHEMA,
    DelayedAck::SCHEMA,
    RECORD,
    GRID,
    CLAIM,
    FIGURE,
    SERIES,
    AXIS,
];

/// Returns all tables of the format. Kinds without keys share one.
pub fn tables() -> impl Iterator<Item = Schema> {
    fn kinds<C: 'static, T: Kinded<C>>() -> impl Iterator<Item = Schema> {
        T::KINDS.iter().map(|(.., schema)| **schema)
    }
    let plain = PLAIN.iter().copied().chain(kinds::<Transmitter, Queue>()).chain(kinds::<_, Loss>());
    plain
        .chain(kinds::<_, Congestion>())
        .chain(kinds::<_, Scheduler>())
        .chain(kinds::<_, Controller>())
        .chain(kinds::<_, Coupling>())
}
