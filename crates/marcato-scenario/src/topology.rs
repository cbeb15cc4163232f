//! Shorthands for common topologies.
//!
//! They are expanded in the tree before it is read, so that their nodes and links can be changed as
//! if the file contained them.

use marcato_document::schema::Schema;
use marcato_document::{Faults, Item, Key, Keyed, Keys, Place, Table, Value, described, no_table};
use marcato_units::Bytes;

use crate::chosen::{Kind, tagged_of};
use crate::link::{Direction, SHARED};

/// Keys of a link that a topology passes on to its own links.
const WIRE: Schema = Schema {
    what: "the links of a topology",
    keys: &[],
    entries: &[SHARED.entries[0], <Direction as Keyed<Bytes>>::ENTRIES[0]],
};

described! {
    ACCESS: "the links between hosts and routers";
    /// rate of the links between hosts and routers
    "access-rate": "infinite";
    /// their delay
    "access-delay": "`\"0 s\"`";
}

described! {
    pub(crate) DUMBBELL: "a dumbbell" kinded,
    and ACCESS.entries[0],
    and WIRE.entries[0],
    and WIRE.entries[1];
    /// number of clients and of servers, 1 to 256
    "pairs": "`1`";
}

described! {
    pub(crate) PARKING_LOT: "a parking lot" kinded,
    and ACCESS.entries[0],
    and WIRE.entries[0],
    and WIRE.entries[1];
    /// number of hops, 1 to 128
    "hops": "`2`";
}

described! {
    pub(crate) MULTIPATH: "a multipath topology" kinded,
    and WIRE.entries[0],
    and WIRE.entries[1];
    /// number of paths, 1 to 16; or a list of tables with the keys of a link, one per path
    "paths": "required";
}

/// Keys of a path of a topology.
pub(crate) const MULTIPATH_PATH: Schema = Schema { what: "a path of a topology", ..WIRE };

described! {
    ASYMMETRIC_OWN: "an asymmetric topology";
    /// rate of `access` towards the router
    "up-rate": "required";
    /// queue in that direction
    "up-queue": "as `queue`";
    /// delay of `core`
    "core-delay": "`\"0 s\"`";
}

/// Keys of an asymmetric topology. Those of a link without `trace` and `back`: its rates are the
/// point.
pub(crate) const ASYMMETRIC: Schema = Schema {
    keys: &[&[
        "kind",
        "rate",
        "delay",
        "framing",
        "mtu",
        "queue",
        "loss",
        "jitter",
        "duplication",
        "bleach-ecn",
        "changes",
    ]],
    ..ASYMMETRIC_OWN
};

#[derive(Clone, Copy)]
enum Name {
    Dumbbell,
    ParkingLot,
    Multipath,
    Asymmetric,
}

const KINDS: &[Kind<Name>] = &[
    ("dumbbell", Name::Dumbbell, &DUMBBELL),
    ("parking-lot", Name::ParkingLot, &PARKING_LOT),
    ("multipath", Name::Multipath, &MULTIPATH),
    ("asymmetric", Name::Asymmetric, &ASYMMETRIC),
];

/// Largest number of pairs, hops or paths. Each makes up to three nodes.
const MOST: u64 = 256;

/// Records that nodes and links could not all be read.
fn forget_names(faults: &Faults) {
    faults.forget_names("node");
    faults.forget_names("link");
}

/// Expands `[topology]`, if there is one: its nodes and links precede those of the file.
///
/// Its table stays in the tree; reading it again has no effect.
pub(crate) fn spell_out(root: &mut Table, faults: &Faults) {
    let Some(item) = root.get("topology").cloned() else { return };
    if !matches!(item.value, Value::Table(_)) {
        faults.add(item.place, no_table("topology", &item));
        return forget_names(faults);
    }
    let Some((name, tagged)) = tagged_of("topology", &item, KINDS, faults) else {
        return forget_names(faults);
    };
    let keys = tagged.keys();
    let mut made = Made { nodes: Vec::new(), links: Vec::new(), place: item.place, keys };
    match name {
        Name::Dumbbell => dumbbell(&mut made),
        Name::ParkingLot => parking_lot(&mut made),
        Name::Multipath => multipath(&mut made),
        Name::Asymmetric => asymmetric(&mut made),
    }
    let Made { nodes, links, place, .. } = made;
    prepend(root, "nodes", place, nodes);
    prepend(root, "link", place, links);
}

/// Inserts items before those of a list, which is created if missing.
fn prepend(root: &mut Table, name: &str, place: Place, mut items: Vec<Item>) {
    match root.get_mut(name) {
        Some(Item { value: Value::Array(old), .. }) => {
            items.append(old);
            *old = items;
        }
        // The reader of this key reports a value that is not a list.
        Some(_) => {}
        None => root.set(Key::new(name, place), Item { value: Value::Array(items), place }),
    }
}

struct Made<'a> {
    nodes: Vec<Item>,
    links: Vec<Item>,
    place: Place,
    keys: Keys<'a>,
}

impl Made<'_> {
    fn node(&mut self, name: &str) {
        self.nodes.push(Item::string(name, self.place));
    }

    /// Adds a link of this name with these settings.
    fn link(&mut self, name: Option<&str>, ends: [&str; 2], settings: Vec<(Key, Item)>) {
        let place = self.place;
        let key = |name: &str| Key::new(name, place);
        let mut table = Table::empty(place);
        if let Some(name) = name {
            table.set(key("name"), Item::string(name, place));
        }
        let ends = ends.iter().map(|end| Item::string(end, place)).collect();
        table.set(key("between"), Item { value: Value::Array(ends), place });
        for (key, item) in settings {
            table.set(key, item);
        }
        self.links.push(Item { value: Value::Table(table), place });
    }

    /// Reads a count, with `usual` as its default. If it cannot be read, some names are unknown.
    fn many(&self, key: &'static str, most: u64, usual: u64) -> u64 {
        let read = self.keys.integer(key, 1..=most);
        if read.is_none() && self.keys.item(key).is_some() {
            forget_names(self.keys.faults);
        }
        read.unwrap_or(usual)
    }

    /// Returns the settings of the topology's own links.
    fn wire(&self) -> Vec<(Key, Item)> {
        WIRE.all().filter_map(|key| self.setting(key, key)).collect()
    }

    /// Returns the settings of the links between hosts and routers.
    fn access(&self) -> Vec<(Key, Item)> {
        let settings = [("access-rate", "rate"), ("access-delay", "delay"), ("mtu", "mtu")];
        settings.iter().filter_map(|(key, name)| self.setting(key, name)).collect()
    }

    /// Returns a setting of the topology under its name in a link.
    fn setting(&self, key: &str, name: &str) -> Option<(Key, Item)> {
        // Not every topology has every key.
        let item = self.keys.optional(key)?;
        Some((Key::new(name, item.place), item.clone()))
    }
}

fn dumbbell(made: &mut Made<'_>) {
    let pairs = made.many("pairs", MOST, 1);
    made.keys.need("rate", "state how fast its bottleneck is, for example rate = \"10 Mbit/s\"");
    for n in 1..=pairs {
        made.node(&format!("client-{n}"));
    }
    made.node("left");
    made.node("right");
    for n in 1..=pairs {
        made.node(&format!("server-{n}"));
    }
    made.link(Some("bottleneck"), ["left", "right"], made.wire());
    for n in 1..=pairs {
        made.link(None, [&format!("client-{n}"), "left"], made.access());
        made.link(None, ["right", &format!("server-{n}")], made.access());
    }
}

fn parking_lot(made: &mut Made<'_>) {
    let hops = made.many("hops", MOST / 2, 2);
    made.keys.need("rate", "state how fast each hop is, for example rate = \"10 Mbit/s\"");
    made.node("client");
    for n in 0..=hops {
        made.node(&format!("router-{n}"));
    }
    made.node("server");
    for n in 1..=hops {
        made.node(&format!("client-{n}"));
        made.node(&format!("server-{n}"));
    }
    for n in 1..=hops {
        let ends = [format!("router-{}", n - 1), format!("router-{n}")];
        made.link(Some(&format!("hop-{n}")), [&ends[0], &ends[1]], made.wire());
    }
    made.link(None, ["client", "router-0"], made.access());
    made.link(None, [&format!("router-{hops}"), "server"], made.access());
    // Traffic across hop n enters before it and leaves after it.
    for n in 1..=hops {
        made.link(None, [&format!("client-{n}"), &format!("router-{}", n - 1)], made.access());
        made.link(None, [&format!("router-{n}"), &format!("server-{n}")], made.access());
    }
}

fn multipath(made: &mut Made<'_>) {
    if !made.keys.need(
        "paths",
        "state how many, for example paths = 2; or what each is like: paths = [{ rate = \"10 Mbit/s\" }]",
    ) {
        return forget_names(made.keys.faults);
    }
    let paths: Vec<Option<Table>> = match made.keys.item("paths").map(|item| &item.value) {
        Some(Value::Array(_)) => made.keys.tables("paths", 16).map(|table| Some(table.clone())).collect(),
        _ => (0..made.many("paths", 16, 1)).map(|_| None).collect(),
    };
    for n in 1..=paths.len() {
        made.node(&format!("client-{n}"));
        made.node(&format!("server-{n}"));
    }
    for (n, own) in (1..).zip(paths) {
        let mut settings = made.wire();
        if let Some(own) = own {
            Keys::open(&own, &MULTIPATH_PATH, made.keys.faults);
            let instead = ["rate", "trace"];
            let replaces = instead.iter().any(|key| own.get(key).is_some());
            settings.retain(|(key, _)| {
                own.get(&key.name).is_none() && !(replaces && instead.contains(&key.name.as_str()))
            });
            settings.extend(own.entries);
        }
        made.link(Some(&format!("path-{n}")), [&format!("client-{n}"), &format!("server-{n}")], settings);
    }
}

fn asymmetric(made: &mut Made<'_>) {
    made.keys.need("rate", "state how fast the way down is, for example rate = \"50 Mbit/s\"");
    made.keys.need("up-rate", "state how fast the way up is, for example up-rate = \"5 Mbit/s\"");
    for name in ["server", "router", "client"] {
        made.node(name);
    }
    let mut settings = made.wire();
    let back: Vec<(Key, Item)> = [("up-rate", "rate"), ("up-queue", "queue")]
        .iter()
        .filter_map(|(key, name)| made.setting(key, name))
        .collect();
    let place = made.place;
    let table = Table { entries: back, place };
    settings.push((Key::new("back", place), Item { value: Value::Table(table), place }));
    let core: Vec<(Key, Item)> = [("core-delay", "delay"), ("mtu", "mtu")]
        .iter()
        .filter_map(|(key, name)| made.setting(key, name))
        .collect();
    made.link(Some("core"), ["server", "router"], core);
    made.link(Some("access"), ["router", "client"], settings);
}
