//! Serialisation of an experiment as a file that reads back as an equal one.

use marcato_units::{Layer, Priority, Time};

use crate::document::{float, quote};
use crate::experiment::Experiment;
use crate::explain::limit_text;
use crate::flow::{Feeder, Flow, FlowKind, Listed, PacketArrivals, Payload, TcpEnds};
use crate::link::{Added, Capacity, Change, Direction, Jitter, Link, Loss, Way};
use crate::plugin::{Parameter, Plugin};
use crate::quantity::{rate, size, span};
use crate::queue::{Codel, Queue, Sharing, Standard, Threshold};
use crate::quic::{Budget, Controller, Growth, Pacing, Quic, Reserving, Scheduler, StreamUse};
use crate::read::record::all;
use crate::record::Pcap;
use crate::tcp::Growth as WindowGrowth;
use crate::tcp::{Congestion, LossDetection, LowLayer, PriorityOption, Tcp};
use crate::traffic::{Arrivals, Bulk, Message, OnOff, Pause, Redundancy, Release, Size, Source};

/// Keys and values in the order of output.
struct Pairs(Vec<(&'static str, String)>);

impl Pairs {
    const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a value in its TOML form: a number, a table or a list.
    fn raw(&mut self, key: &'static str, value: impl ToString) -> &mut Self {
        self.0.push((key, value.to_string()));
        self
    }

    fn text(&mut self, key: &'static str, value: impl AsRef<str>) -> &mut Self {
        self.raw(key, quote(value.as_ref()))
    }

    fn float(&mut self, key: &'static str, value: f64) -> &mut Self {
        // Debug output is the shortest text that reads back as the same float, and always has a
        // point or an exponent.
        self.raw(key, format!("{value:?}"))
    }

    fn inline(&self) -> String {
        let pairs: Vec<String> = self.0.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        format!("{{ {} }}", pairs.join(", "))
    }

    fn lines(&self) -> String {
        self.0.iter().map(|(key, value)| format!("{key} = {value}\n")).collect()
    }
}

fn array(items: impl IntoIterator<Item = String>) -> String {
    let items: Vec<String> = items.into_iter().collect();
    format!("[{}]", items.join(", "))
}

fn strings(items: &[String]) -> String {
    array(items.iter().map(|item| quote(item)))
}

fn time(time: Time) -> String {
    span(time - Time::ZERO)
}

fn priority(priority: Priority) -> String {
    format!("p{}", priority.index())
}

const fn layer(layer: Layer) -> &'static str {
    match layer {
        Layer::High => "high",
        Layer::Low => "low",
    }
}

impl Experiment {
    /// Returns the experiment as a scenario file with every default spelled out.
    ///
    /// The file reads back as an equal experiment, unless it exceeds the [limit of a
    /// file](crate::limit::MAX_FILE).
    pub fn to_toml(&self) -> String {
        let mut root = Pairs::new();
        root.text("name", &self.name);
        if !self.about.is_empty() {
            root.text("about", &self.about);
        }
        root.text("duration", span(self.duration));
        root.text("warm-up", span(self.warm_up));
        root.raw("seed", self.seed.get());
        root.raw("nodes", strings(&self.nodes));
        if self.links.is_empty() {
            root.raw("link", "[]");
        }
        let mut out = root.lines();
        for link in &self.links {
            out += "\n[[link]]\n";
            out += &link_pairs(link).lines();
        }
        for flow in &self.flows {
            out += "\n[[flow]]\n";
            out += &flow_pairs(flow).lines();
        }
        out += "\n[record]\n";
        let mut record = Pairs::new();
        record.text("every", span(self.record.every));
        if !self.record.series.is_empty() && self.record.series == all(self) {
            record.text("series", "all");
        } else {
            record.raw("series", array(self.record.series.iter().map(|series| quote(&series.to_string()))));
        }
        let Pcap { links, snaplen, format } = &self.record.pcap;
        record.raw("pcap", strings(links)).text("pcap-format", format.name());
        record.text("snaplen", snaplen.map_or_else(|| "whole".to_owned(), size));
        out + &record.lines()
    }
}

fn link_pairs(link: &Link) -> Pairs {
    let mut pairs = Pairs::new();
    pairs.text("name", &link.name).raw("between", strings(&link.between)).text("mtu", size(link.mtu));
    direction(&link.there, &mut pairs);
    if link.back != link.there {
        let mut back = Pairs::new();
        direction(&link.back, &mut back);
        pairs.raw("back", back.inline());
    }
    if !link.changes.is_empty() {
        pairs.raw("changes", array(link.changes.iter().map(change)));
    }
    pairs
}

fn direction(of: &Direction, pairs: &mut Pairs) {
    match &of.rate {
        Capacity::Unlimited => {}
        Capacity::Rate(fixed) => {
            pairs.text("rate", rate(*fixed));
        }
        Capacity::Trace(path) => {
            pairs.text("trace", path);
        }
    }
    pairs.text("delay", span(of.delay)).text("framing", size(of.framing)).raw("queue", queue(&of.queue));
    pairs.raw("loss", loss(&of.loss));
    pairs.raw("jitter", of.jitter.map_or_else(|| quote("none"), jitter));
    pairs.float("duplication", of.duplication).raw("bleach-ecn", of.bleach_ecn);
}

fn queue(of: &Queue) -> String {
    let mut pairs = Pairs::new();
    pairs.text("kind", of.kind());
    match of {
        Queue::DropTail { limit } | Queue::PushOut { limit } => pairs.text("limit", limit_text(*limit)),
        Queue::Codel(codel) => self::codel(codel, &mut pairs),
        Queue::FqCodel { codel, flows, quantum } => {
            self::codel(codel, &mut pairs).raw("flows", flows).text("quantum", size(*quantum))
        }
        Queue::Crq(crq) => {
            let standard = match crq.standard {
                Standard::Codel => "codel",
                Standard::DropTail => "droptail",
            };
            pairs
                .text("preset", crq.preset.name())
                .text("standard", standard)
                .text("sharing", crq.sharing.name());
            if crq.sharing == Sharing::Strict {
                pairs.float("standard-least", f64::from(crq.standard_least) / 1e3);
            }
            self::codel(&crq.codel, &mut pairs).raw("flows", crq.flows)
        }
        Queue::StepMark { limit, threshold } => {
            let threshold = match threshold {
                Threshold::Waiting(limit) => limit_text(*limit),
                Threshold::Sojourn(sojourn) => span(*sojourn),
            };
            pairs.text("limit", limit_text(*limit)).text("threshold", threshold)
        }
        Queue::Red(red) => pairs
            .text("limit", limit_text(red.limit))
            .text("min-threshold", limit_text(red.min_threshold))
            .text("max-threshold", limit_text(red.max_threshold))
            .float("max-probability", f64::from(red.max_probability) / 1e6)
            .float("weight", f64::from(red.weight) / 1e6)
            .text("idle", span(red.idle))
            .raw("gentle", red.gentle)
            .raw("ecn", red.ecn),
        Queue::Pie(pie) => pairs
            .text("limit", limit_text(pie.limit))
            .text("target", span(pie.target))
            .text("update", span(pie.update))
            .text("burst", span(pie.burst))
            .float("alpha", f64::from(pie.alpha) / 1e3)
            .float("beta", f64::from(pie.beta) / 1e3)
            .raw("ecn", pie.ecn),
        Queue::Strict { high, low, preempt } => {
            pairs.raw("high", queue(high)).raw("low", queue(low)).raw("preempt", preempt)
        }
        Queue::Plugin(plugin) => return plugin_text(plugin),
    };
    pairs.inline()
}

fn codel<'p>(of: &Codel, pairs: &'p mut Pairs) -> &'p mut Pairs {
    pairs
        .text("target", span(of.target))
        .text("interval", span(of.interval))
        .text("limit", limit_text(of.limit))
        .text("maxpacket", size(of.maxpacket))
        .raw("ecn", of.ecn)
}

fn loss(of: &Loss) -> String {
    let mut pairs = Pairs::new();
    match of {
        Loss::None => return quote("none"),
        Loss::Random { probability } => pairs.text("kind", "random").float("probability", *probability),
        Loss::Every { packets } => pairs.text("kind", "every").raw("packets", packets),
        Loss::Script { packets } => {
            pairs.text("kind", "script").raw("packets", array(packets.iter().map(ToString::to_string)))
        }
        Loss::GilbertElliott(chain) => pairs
            .text("kind", "gilbert-elliott")
            .float("p", chain.p)
            .float("r", chain.r)
            .float("loss-good", chain.loss_good)
            .float("loss-bad", chain.loss_bad),
    };
    pairs.inline()
}

fn jitter(of: Jitter) -> String {
    let mut pairs = Pairs::new();
    match of.added {
        Added::Uniform { least, most } => {
            pairs.text("kind", "uniform").text("least", span(least)).text("most", span(most))
        }
        Added::Normal { mean, deviation } => {
            pairs.text("kind", "normal").text("mean", span(mean)).text("deviation", span(deviation))
        }
        Added::Exponential { mean } => pairs.text("kind", "exponential").text("mean", span(mean)),
    };
    pairs.raw("reorder", of.reorder).inline()
}

fn change(of: &Change) -> String {
    let mut pairs = Pairs::new();
    let way = match of.way {
        Way::Both => "both",
        Way::There => "there",
        Way::Back => "back",
    };
    pairs.text("at", time(of.at)).text("way", way);
    if let Some(to) = of.rate {
        pairs.text("rate", rate(to));
    }
    if let Some(up) = of.up {
        pairs.raw("up", up);
    }
    if let Some(delay) = of.delay {
        pairs.text("delay", span(delay)).raw("reorder", of.reorder);
    }
    if let Some(to) = &of.loss {
        pairs.raw("loss", loss(to));
    }
    if let Some(to) = &of.queue {
        pairs.raw("queue", queue(to));
    }
    pairs.inline()
}

fn flow_pairs(flow: &Flow) -> Pairs {
    let mut pairs = Pairs::new();
    pairs.text("name", &flow.name).text("kind", flow.kind.name());
    if !flow.also.is_empty() {
        let ends = |end: usize| array(flow.pairs().map(|pair| quote(pair[end])));
        pairs.raw("from", ends(0)).raw("to", ends(1));
    } else if !matches!(flow.kind, FlowKind::Quic(_)) {
        pairs.text("from", &flow.from).text("to", &flow.to);
    }
    pairs.raw("count", flow.count).text("stagger", span(flow.stagger)).text("start", time(flow.start));
    pairs.text("start-jitter", span(flow.start_jitter));
    if let Some(stop) = flow.stop {
        pairs.text("stop", time(stop));
    }
    pairs.text("layer", layer(flow.layer));
    if let Some(ends) = flow.kind.tcp() {
        tcp_ends(ends, &mut pairs);
    }
    match &flow.kind {
        FlowKind::Tcp(tcp) => {
            if let Some(bytes) = tcp.size {
                pairs.text("size", size(bytes));
            }
            pairs.text("priority", priority(tcp.priority));
            on_off(tcp.on_off, &mut pairs);
        }
        FlowKind::Udp(udp) => {
            pairs.text("rate", rate(udp.rate)).raw("payload", payload(&udp.payload));
            if let Payload::Drawn { most, .. } = udp.payload {
                pairs.text("most-payload", size(most));
            }
            match udp.arrivals {
                PacketArrivals::Constant => pairs.text("arrivals", "constant"),
                PacketArrivals::Poisson => pairs.text("arrivals", "poisson"),
                PacketArrivals::Ticks { every } => pairs.text("arrivals", "ticks").text("tick", span(every)),
            };
            on_off(udp.on_off, &mut pairs);
        }
        FlowKind::TcpProcess(process) => {
            match process.arrivals {
                Arrivals::Every(gap) => pairs.text("arrivals", span(gap)),
                Arrivals::Load(load) => pairs.text("load", rate(load)),
            };
            pairs.raw("size", distribution(&process.size)).raw("most-open", process.most_open);
        }
        FlowKind::RequestResponse(ask) => {
            pairs.text("request", size(ask.request)).raw("response", distribution(&ask.response));
            pairs.raw("think", pause(ask.think));
            if let Some(requests) = ask.requests {
                pairs.raw("requests", requests);
            }
        }
        FlowKind::Messages(messages) => {
            let feeder = match messages.feeder {
                Feeder::Conductor => "conductor",
                Feeder::Greedy => "greedy",
                Feeder::Fifo => "fifo",
                Feeder::Writers => "writers",
            };
            pairs.text("feeder", feeder);
            if matches!(messages.feeder, Feeder::Conductor | Feeder::Greedy) {
                pairs.text("preset", messages.preset.name()).text("chunk", size(messages.chunk));
            }
            sent(&messages.messages, &messages.sources, &messages.bulk, &mut pairs);
        }
        FlowKind::Quic(quic) => quic_pairs(quic, flow.also.is_empty(), &mut pairs),
    }
    pairs
}

fn on_off(on_off: Option<OnOff>, pairs: &mut Pairs) {
    if let Some(OnOff { on, off }) = on_off {
        pairs.raw("on", pause(on)).raw("off", pause(off));
    }
}

fn pause(of: Pause) -> String {
    match of {
        Pause::Constant(time) => quote(&span(time)),
        Pause::Exponential { mean } => {
            Pairs::new().text("kind", "exponential").text("mean", span(mean)).inline()
        }
    }
}

fn payload(of: &Payload) -> String {
    match of {
        Payload::Constant(bytes) => quote(&size(*bytes)),
        Payload::Drawn { size, .. } => distribution(size),
        Payload::Listed(Listed { file, is_random, .. }) => {
            let order = if *is_random { "random" } else { "in-turn" };
            Pairs::new().text("kind", "file").text("file", file).text("order", order).inline()
        }
    }
}

fn distribution(of: &Size) -> String {
    let mut pairs = Pairs::new();
    match of {
        Size::Constant(bytes) => return quote(&size(*bytes)),
        Size::Exponential { mean } => pairs.text("kind", "exponential").text("mean", size(*mean)),
        Size::Pareto { shape, mean, most } => pairs
            .text("kind", "pareto")
            .float("shape", *shape)
            .text("mean", size(*mean))
            .text("most", size(*most)),
        Size::LogNormal { mean, sigma } => {
            pairs.text("kind", "log-normal").text("mean", size(*mean)).float("sigma", *sigma)
        }
    };
    pairs.inline()
}

fn sent(messages: &[Message], sources: &[Source], bulk: &[Bulk], pairs: &mut Pairs) {
    pairs.raw("messages", array(messages.iter().map(message)));
    pairs.raw("sources", array(sources.iter().map(source)));
    let one = |bulk: &Bulk| {
        Pairs::new().text("priority", priority(bulk.priority)).text("size", size(bulk.size)).inline()
    };
    pairs.raw("bulk", array(bulk.iter().map(one)));
}

fn message(of: &Message) -> String {
    let mut pairs = Pairs::new();
    if let Some(name) = &of.name {
        pairs.text("name", name);
    }
    pairs.text("after", span(of.after)).text("size", size(of.size)).text("priority", priority(of.priority));
    if let Some(lifetime) = of.lifetime {
        pairs.text("lifetime", span(lifetime));
    }
    pairs.inline()
}

fn source(of: &Source) -> String {
    let mut pairs = Pairs::new();
    pairs.text("period", span(of.period)).text("size", size(of.size)).text("priority", priority(of.priority));
    pairs.text("first", span(of.first));
    match of.release {
        Release::Periodic => pairs.text("release", "periodic"),
        Release::Jittered(jitter) => pairs.text("release", "jittered").text("jitter", span(jitter)),
        Release::Poisson => pairs.text("release", "poisson"),
    };
    let redundancy = match of.redundancy {
        Redundancy::Once => "once",
        Redundancy::EveryLane => "every-lane",
    };
    pairs.text("redundancy", redundancy);
    if let Some(lifetime) = of.lifetime {
        pairs.text("lifetime", span(lifetime));
    }
    pairs.raw("declared", of.declared).raw("named", of.named).inline()
}

fn tcp_ends(ends: &TcpEnds, pairs: &mut Pairs) {
    pairs.raw("tcp", tcp(&ends.from).inline());
    if ends.to != ends.from {
        pairs.raw("tcp-to", tcp(&ends.to).inline());
    }
}

fn tcp(of: &Tcp) -> Pairs {
    let mut pairs = Pairs::new();
    let congestion = match &of.congestion {
        Congestion::Cubic { hystart, fast_convergence } => {
            let mut pairs = Pairs::new();
            pairs.text("kind", "cubic").raw("hystart", hystart).raw("fast-convergence", fast_convergence);
            pairs.inline()
        }
        Congestion::Plugin(plugin) => plugin_text(plugin),
        other => quote(other.name()),
    };
    pairs.raw("congestion", congestion);
    pairs.text("mss", format!("{} B", of.mss)).raw("initial-window", of.initial_window);
    match of.initial_ssthresh {
        Some(segments) => pairs.raw("initial-ssthresh", segments),
        None => pairs.text("initial-ssthresh", "none"),
    };
    pairs.raw(
        "growth",
        match of.growth {
            WindowGrowth::Acknowledgements => quote("acks"),
            WindowGrowth::Bytes { limit } => {
                let mut pairs = Pairs::new();
                pairs.text("kind", "bytes").raw("limit", limit);
                pairs.inline()
            }
        },
    );
    pairs.text("send-buffer", size(of.send_buffer)).text("receive-buffer", size(of.receive_buffer));
    // Also written as "none": the far end would otherwise inherit the near end's value.
    for (key, bytes) in [("receive-buffer-from", of.receive_buffer_from), ("notsent-lowat", of.notsent_lowat)]
    {
        pairs.text(key, bytes.map_or_else(|| "none".to_owned(), size));
    }
    let mut ack = Pairs::new();
    ack.raw("every", of.delayed_ack.every).text("timeout", span(of.delayed_ack.timeout));
    ack.raw("first-at-once", of.delayed_ack.first_at_once)
        .raw("urgent-at-once", of.delayed_ack.urgent_at_once);
    pairs.raw("delayed-ack", ack.inline());
    pairs.text("min-rto", span(of.min_rto)).text("max-rto", span(of.max_rto));
    pairs.text("initial-rto", span(of.initial_rto));
    pairs.raw("timestamps", of.timestamps).raw("sack", of.sack).raw("ecn", of.ecn);
    let option = match of.priority_option {
        None => "none",
        Some(PriorityOption::Rfc6994) => "rfc6994",
        Some(PriorityOption::Short) => "short",
        Some(PriorityOption::Authors) => "authors",
    };
    let detection = match of.loss_detection {
        LossDetection::Rack => "rack",
        LossDetection::DupThresh => "dup-thresh",
    };
    pairs.text("priority-option", option).text("loss-detection", detection).raw("pacing", of.pacing);
    pairs.text("segmentation-offload", of.segmentation_offload.map_or_else(|| "none".to_owned(), size));
    pairs.raw("slow-start-after-idle", of.slow_start_after_idle);
    pairs.raw("low-layer", of.low_layer.map_or_else(|| quote("none"), low_layer));
    pairs
}

fn low_layer(of: LowLayer) -> String {
    let mut pairs = Pairs::new();
    pairs.text("kind", "marcato");
    match of.target {
        Some(target) => pairs.float("target", target),
        None => pairs.text("target", "found"),
    };
    pairs.text("epoch", of.epoch.map_or_else(|| "round-trip".to_owned(), span));
    pairs.raw("initial-window", of.initial_window).raw("most-window", of.most_window);
    pairs.text("min-rto", span(of.min_rto)).text("first-rto", span(of.first_rto));
    pairs.raw("retransmissions", of.retransmissions);
    pairs.text("ack-layer", layer(of.ack_layer)).raw("ack-every", of.ack_every);
    pairs.text("high-for", of.high_for.map_or_else(|| "all".to_owned(), priority));
    pairs.inline()
}

fn quic_pairs(quic: &Quic, has_paths: bool, pairs: &mut Pairs) {
    let path = |path: &crate::quic::Path| {
        let mut pairs = Pairs::new();
        pairs.text("from", &path.from).text("to", &path.to).text("layer", layer(path.layer)).inline()
    };
    if has_paths {
        pairs.raw("paths", array(quic.paths.iter().map(path)));
    }
    pairs.raw("scheduler", scheduler(&quic.scheduler)).raw("layered", quic.layered);
    let controller = match quic.controller {
        Controller::NewReno { loss_reduction } => {
            Pairs::new().text("kind", "new-reno").float("loss-reduction", loss_reduction).inline()
        }
        other => quote(other.name()),
    };
    pairs.raw("controller", controller);
    if let Some(window) = quic.initial_window {
        pairs.text("initial-window", size(window));
    }
    pairs.text("preset", quic.preset.name()).text("chunk", size(quic.chunk));
    sent(&quic.messages, &quic.sources, &quic.bulk, pairs);
    let pacing = match quic.pacing {
        Pacing::Off => "off",
        Pacing::Session => "session",
        Pacing::Strict => "strict",
    };
    let growth = match quic.growth {
        Growth::Acknowledged => "acknowledged",
        Growth::Credited => "credited",
    };
    let streams = match quic.streams {
        StreamUse::PerMessage => "per-message",
        StreamUse::Reuse => "reuse",
    };
    pairs.text("pacing", pacing).text("growth", growth).text("streams", streams).raw("batch", quic.batch);
    pairs.text("initial-mtu", size(quic.initial_mtu)).raw("mtu-discovery", quic.mtu_discovery);
    pairs.raw("packet-threshold", quic.packet_threshold).float("time-threshold", quic.time_threshold);
    pairs.text("initial-rtt", span(quic.initial_rtt));
}

fn scheduler(of: &Scheduler) -> String {
    let mut pairs = Pairs::new();
    pairs.text("kind", of.name());
    match of {
        Scheduler::LowRtt | Scheduler::RoundRobin => {}
        Scheduler::Plugin(plugin) => return plugin_text(plugin),
        Scheduler::Cwr(reserving) | Scheduler::CwrRed(reserving) => {
            let Reserving { threshold, background_share, learn, budget } = *reserving;
            pairs
                .text("threshold", priority(threshold))
                .raw("background-share", background_share)
                .raw("learn", learn);
            let budget = budget.map_or_else(
                || quote("unlimited"),
                |Budget { allowance, share }| {
                    Pairs::new().text("allowance", size(allowance)).raw("share", share).inline()
                },
            );
            pairs.raw("budget", budget);
        }
        Scheduler::Selective(threshold) => {
            pairs.text("threshold", priority(*threshold));
        }
    }
    pairs.inline()
}

/// Formats a plug-in as a table. Its keys are not known at compile time, so this is no [`Pairs`].
fn plugin_text(of: &Plugin) -> String {
    let value = |value: &Parameter| match value {
        Parameter::Number(number) => float(*number),
        Parameter::Text(text) => quote(text),
        Parameter::Flag(flag) => flag.to_string(),
    };
    let parameters = of.parameters.iter().map(|(key, one)| format!(", {key} = {}", value(one)));
    format!("{{ kind = {}{} }}", quote(&of.name), parameters.collect::<String>())
}
