//! Flows whose directions leave by two devices: downloads that are shaped behind an IFB, as home routers do it.

use marcato_kernel::{Attachment, Device, Pinned, Reverse, Shaper, Whereabouts};
use marcato_queue::trap::{TrapKind, Verdict};
use marcato_testing::skip;

use crate::net::{Net, run};
use crate::{SHAPER, configuration, only_flow, trap_value};

/// Redirects packets that enter the router's device `lan` to an IFB, with queues. Returns whether the kernel can.
fn redirect(net: &Net) -> bool {
    let router = &net.names[0];
    if let Err(why) = run("ip", &format!("-n {router} link add ifb9 type ifb")) {
        skip(env!("CARGO_PKG_NAME"), &format!("the kernel has no ifb: {why}"));
        return false;
    }
    run("ip", &format!("-n {router} link set ifb9 addrgenmode none")).unwrap();
    run("ip", &format!("-n {router} link set ifb9 up")).unwrap();
    net.tc("qdisc add dev lan clsact");
    net.tc(
        "filter add dev lan ingress protocol all u32 match u32 0 0 action mirred egress redirect dev ifb9",
    );
    net.shape_device("ifb9", &SHAPER);
    true
}

/// Attaches the programs to the IFB.
fn attach(net: &Net, reverse: Option<&str>) -> Attachment {
    net.on(0, || {
        let device = Device::find("ifb9").unwrap();
        assert!(device.ifb);
        let reverse = reverse.map(|name| Device::find(name).unwrap());
        let reverse = reverse.map(|it| Reverse { ifindex: it.ifindex, ethernet: it.ethernet });
        let configuration =
            marcato_kernel::Configuration { reverse, ..configuration(&device, SHAPER.priority()) };
        Attachment::attach(net.pins.path(), &device, &configuration, 1024).unwrap()
    })
}

#[test]
fn flows_behind_an_ifb_have_round_trips_and_drops() {
    let Some(net) = Net::new("ifb") else { return };
    if !redirect(&net) {
        return;
    }
    assert_eq!(net.on(0, || Device::redirected_to("ifb9").unwrap())[0].name, "lan");
    for (reverse, is_seen) in [(Some("lan"), true), (None, false)] {
        let attachment = attach(&net, reverse);
        net.send(2_000_000);
        let flow = only_flow(&attachment, 1300);
        assert_eq!(flow.kind, Some(TrapKind::Tcp));
        // The sender's own queue is short where the kernel still counts its packets here.
        let drops = net.leaf("ifb9", "c4:10").drops;
        assert_eq!(flow.signals[0] > 0, drops > 0, "{drops} drops, {flow:?}");
        net.on(0, || drop(Shaper::undo("ifb9").run().unwrap()));
        net.shape_device("ifb9", &SHAPER);
        assert_eq!(flow.rtt.is_some(), is_seen, "{flow:?}");
        assert_eq!(trap_value(&flow, "cycles") > 5, is_seen, "{flow:?}");
        // A flow of which one direction passes elsewhere is not called unresponsive for that.
        if !is_seen {
            assert_eq!(flow.verdicts, [Verdict::Unclassified; 2], "{flow:?}");
        }
        net.on(0, || Attachment::detach(net.pins.path(), &Device::find("ifb9").unwrap()).unwrap());
    }
    net.send(100_000);
}

#[test]
fn an_ifb_and_its_device_have_programs_at_one_time() {
    let Some(net) = Net::new("both") else { return };
    if !redirect(&net) {
        return;
    }
    let own = net.on(0, || {
        let device = Device::find("lan").unwrap();
        Attachment::attach(net.pins.path(), &device, &configuration(&device, [0; 2]), 1024).unwrap()
    });
    let behind = attach(&net, Some("lan"));
    net.send(500_000);
    // Data on the one way, acknowledgements on the other.
    assert!(only_flow(&behind, 300).rtt.is_some());
    assert_eq!(own.flows().filter(|(_, state)| state.packets > 0).count(), 1);
    net.on(0, || {
        for name in ["ifb9", "lan"] {
            Attachment::detach(net.pins.path(), &Device::find(name).unwrap()).unwrap();
        }
    });
    net.send(100_000);
}

#[test]
fn the_end_of_the_reverse_device_is_told() {
    let Some(net) = Net::new("reverse") else { return };
    if !redirect(&net) {
        return;
    }
    drop(attach(&net, Some("lan")));
    let device = net.on(0, || Device::find("ifb9").unwrap());
    let whereabouts = || net.on(0, || Pinned::of(net.pins.path(), &device).unwrap().whereabouts());
    assert_eq!(whereabouts(), Whereabouts::Attached);
    run("ip", &format!("-n {} link del lan", net.names[0])).unwrap();
    assert_eq!(whereabouts(), Whereabouts::OneWay);
    net.on(0, || Attachment::detach(net.pins.path(), &device).unwrap());
    assert_eq!(Pinned::all(net.pins.path()).unwrap(), []);
}

// Before Linux 6.6 the programs are filters: `make test-kernel`.
#[test]
fn a_device_with_an_ingress_queue_has_both_hooks_or_none() {
    let Some(net) = Net::new("ingress") else { return };
    net.tc("qdisc add dev wan ingress");
    let attached = net.on(0, || {
        let device = Device::find("wan").unwrap();
        Attachment::attach(net.pins.path(), &device, &configuration(&device, [0; 2]), 1024)
    });
    match attached {
        Ok(attachment) => {
            net.send(500_000);
            assert!(only_flow(&attachment, 300).rtt.is_some());
        }
        Err(error) => {
            assert!(error.to_string().contains("tc qdisc add dev wan clsact"), "{error}");
            assert_eq!(Pinned::all(net.pins.path()).unwrap(), []);
        }
    }
}
