//! Reader of flows.

use marcato_document::nearest::hint;
use marcato_document::{Faults, Item, Keyed as _, Keys, Table, Value};

use crate::chosen::tagged_of;
use crate::flow::{Common, Flow, FlowKind, TcpEnds, TcpFlow};
use crate::kinded::Kinded;
use crate::limit::MAX_NODES;
use crate::quic::Ends;

pub(super) fn flow(table: &Table, nodes: &[String], faults: &Faults) -> Flow {
    let item = Item { value: Value::Table(table.clone()), place: table.place };
    let kinds = <FlowKind as Kinded<Ends>>::KINDS;
    let Some((read, tagged)) = tagged_of("flow", &item, kinds, faults) else {
        // The kind determines the other keys, so unknown keys cannot be judged.
        let keys = Keys::trusting(table, &TcpFlow::SCHEMA, faults);
        let common = Common::read(&keys, &());
        let pairs = pairs(&keys, nodes, common.as_ref().map_or(1, |of| of.count));
        return put_together(common, pairs, nothing());
    };
    let keys = tagged.keys();
    let common = Common::read(&keys, &());
    let has_paths = keys.optional("paths").is_some();
    if has_paths {
        for key in ["from", "to"] {
            if keys.item(key).is_some() && (keys.is_set(key) || !keys.is_chosen("kind")) {
                keys.fault(key, format!("the session's `paths` name its nodes: leave `{key}` out"));
            }
        }
    } else {
        keys.need("from", "state which node sends");
        keys.need("to", "state which node receives");
    }
    let count = common.as_ref().map_or(1, |of| of.count);
    let mut pairs = if has_paths { Vec::new() } else { pairs(&keys, nodes, count) };
    let ends = Ends {
        nodes: (!has_paths).then(|| pairs.first().cloned().unwrap_or_default()),
        layer: common.as_ref().map(|of| of.layer).unwrap_or_default(),
    };
    let kind = read(&keys, &ends).unwrap_or_else(nothing);
    if let FlowKind::Quic(quic) = &kind
        && let Some(first) = quic.paths.first()
    {
        let first = [first.from.clone(), first.to.clone()];
        match pairs.first_mut() {
            Some(pair) => *pair = first,
            None => pairs.push(first),
        }
    }
    put_together(common, pairs, kind)
}

/// Returns the flow with these pairs of nodes.
fn put_together(common: Option<Common>, pairs: Vec<[String; 2]>, kind: FlowKind) -> Flow {
    let mut pairs = pairs.into_iter();
    let [from, to] = pairs.next().unwrap_or_default();
    let also = pairs.collect();
    let none = Flow::new(kind);
    match common {
        None => Flow { from, to, also, ..none },
        Some(Common { name, count, stagger, start, start_jitter, stop, layer, .. }) => {
            Flow { name, from, to, also, count, stagger, start, start_jitter, stop, layer, ..none }
        }
    }
}

/// Returns a placeholder for a kind that could not be read.
fn nothing() -> FlowKind {
    let mut tcp = TcpEnds::default();
    // Packets this small fit every link, so the placeholder adds no fault.
    (tcp.from.mss, tcp.to.mss) = (1, 1);
    FlowKind::Tcp(TcpFlow::new(tcp))
}

/// Returns the pairs of nodes that `from` and `to` name, over which `count` instances are spread.
fn pairs(keys: &Keys<'_>, nodes: &[String], count: u32) -> Vec<[String; 2]> {
    let (from, to) = (ends_named(keys, "from", nodes), ends_named(keys, "to", nodes));
    // A list that could not be read was already reported.
    let (Some(from), Some(to)) = (from, to) else { return Vec::new() };
    let many = from.len().max(to.len());
    if [&from, &to].iter().any(|ends| ends.len() != many && ends.len() != 1) {
        let (from, to) = (from.len(), to.len());
        keys.fault("to", format!("`from` names {from} nodes and `to` {to}: name as many of each, or one"));
        return Vec::new();
    }
    if many > count as usize {
        let place = if keys.item("count").is_some() { "count" } else { "from" };
        let problem = format!(
            "there are {many} pairs of nodes for {count} of these flows: write count = {many} or more"
        );
        keys.fault(place, problem);
        return Vec::new();
    }
    let mut pairs: Vec<[String; 2]> = Vec::new();
    let all = from.iter().cycle().zip(to.iter().cycle()).take(many);
    for (from, to) in all {
        pairs.push([from.clone(), to.clone()]);
    }
    pairs
}

/// Returns the nodes that `from` or `to` names: one, a list, or all whose names match a pattern
/// with a `*`. If there are none, the fault has been reported.
fn ends_named(keys: &Keys<'_>, key: &str, nodes: &[String]) -> Option<Vec<String>> {
    let item = keys.item(key)?;
    if let Value::Array(items) = &item.value {
        let names: Vec<String> =
            keys.strings(key, MAX_NODES).into_iter().map(|(name, _)| name.to_owned()).collect();
        if items.is_empty() {
            keys.fault(key, format!("`{key}` names no node: state which"));
        }
        return (!names.is_empty() && names.len() == items.len()).then_some(names);
    }
    let name = keys.string(key)?;
    let Some((before, after)) = name.split_once('*') else { return Some(vec![name.to_owned()]) };
    let fits = |node: &&String| {
        node.len() > before.len() + after.len() && node.starts_with(before) && node.ends_with(after)
    };
    let found: Vec<String> = nodes.iter().filter(fits).cloned().collect();
    if found.is_empty() {
        if !keys.faults.has_names("node") {
            return None;
        }
        let advice = hint(name, nodes.iter().map(String::as_str));
        keys.fault(key, format!("no node is called `{name}`: {advice}"));
        return None;
    }
    Some(found)
}
