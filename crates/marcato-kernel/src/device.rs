//! Network device on which programs are attached.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

use marcato_units::Bytes;

use crate::error::DeviceError;

/// Network device of the caller's network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Name.
    pub name: String,
    /// Number.
    pub ifindex: u32,
    /// Inode number of its network namespace.
    pub netns: u32,
    /// Set if its packets begin with an Ethernet header. Otherwise they begin with IP, as those of
    /// ppp, tun and WireGuard do.
    pub ethernet: bool,
    /// Number of transmit queues.
    pub queues: u32,
    /// Largest IP packet that it sends.
    pub mtu: Bytes,
    /// Largest packet that the system hands to it, or makes of several that it receives, to be cut into packets of
    /// the MTU later: segmentation and receive offload. The MTU, if neither is on.
    pub largest: Bytes,
    /// Set for an intermediate functional block (IFB): packets that enter another device are redirected to
    /// it, and none enters it from outside.
    pub ifb: bool,
}

impl Device {
    /// Looks a device up with iproute2's `ip`.
    ///
    /// # Errors
    /// [`DeviceError`] if there is no such device, or none that CRQ can be used on.
    pub fn find(name: &str) -> Result<Self, DeviceError> {
        let links = links(name, &["dev", name])?;
        let link =
            links.into_iter().next().ok_or_else(|| DeviceError::Unreadable { name: name.to_owned() })?;
        link.device(namespace()?)
    }

    /// Returns the devices of the caller's network namespace that CRQ can be used on.
    ///
    /// # Errors
    /// [`DeviceError`] if they cannot be listed.
    pub fn all() -> Result<Vec<Self>, DeviceError> {
        let netns = namespace()?;
        Ok(links("all devices", &[])?.into_iter().filter_map(|link| link.device(netns).ok()).collect())
    }

    /// Returns the devices whose entering packets a filter of `tc` redirects to the device of this name.
    /// Packets that a program redirects are not found.
    ///
    /// # Errors
    /// [`DeviceError`] if the devices cannot be listed.
    pub fn redirected_to(name: &str) -> Result<Vec<Self>, DeviceError> {
        let redirects = |device: &Self| {
            let command = ["-json", "filter", "show", "dev", &device.name, "ingress"];
            let said = Command::new("tc").args(command).output();
            said.is_ok_and(|said| is_redirect_to(&String::from_utf8_lossy(&said.stdout), name))
        };
        let mut devices = Self::all()?;
        devices.retain(|device| device.name != name && redirects(device));
        Ok(devices)
    }
}

/// Returns whether a listing of filters names a device to which packets are redirected. Some versions of `tc` print
/// filters of some kinds beside JSON, so this looks for the words.
fn is_redirect_to(filters: &str, name: &str) -> bool {
    let spaceless: String = filters.split_whitespace().collect();
    spaceless.contains(&format!("\"to_dev\":\"{name}\""))
}

/// Name of the device with this number in the caller's network namespace, if it is there.
pub(crate) fn name_of(ifindex: u32) -> Option<String> {
    let links = links("all devices", &[]).ok()?;
    links.into_iter().find(|link| link.ifindex == ifindex).map(|link| link.ifname)
}

/// Numbers of all devices of the caller's network namespace.
pub(crate) fn numbers() -> Result<Vec<u32>, DeviceError> {
    Ok(links("all devices", &[])?.into_iter().map(|link| link.ifindex).collect())
}

/// Inode number of the caller's network namespace.
pub(crate) fn namespace() -> Result<u32, DeviceError> {
    let inode = std::fs::metadata("/proc/thread-self/ns/net").map_err(DeviceError::Namespace)?.ino();
    // The kernel numbers namespaces with 32 bits.
    Ok(u32::try_from(inode).unwrap_or(u32::MAX))
}

/// Returns what `ip` lists.
fn links(name: &str, which: &[&str]) -> Result<Vec<Link>, DeviceError> {
    let said = Command::new("ip")
        .args(["-json", "-details", "link", "show"])
        .args(which)
        .output()
        .map_err(DeviceError::NoIp)?;
    if !said.status.success() {
        let why = String::from_utf8_lossy(&said.stderr).trim().to_owned();
        return Err(DeviceError::Unknown { name: name.to_owned(), why });
    }
    read(name, &said.stdout)
}

/// Reads the output of `ip -json -details link show`.
fn read(name: &str, json: &[u8]) -> Result<Vec<Link>, DeviceError> {
    serde_json::from_slice(json).map_err(|_| DeviceError::Unreadable { name: name.to_owned() })
}

impl Link {
    fn device(self, netns: u32) -> Result<Device, DeviceError> {
        let ethernet = match self.link_type.as_str() {
            "ether" => true,
            "none" | "ppp" | "ipip" | "gre" | "sit" | "tunnel6" | "rawip" => false,
            _ => return Err(DeviceError::Kind { name: self.ifname, kind: self.link_type }),
        };
        let mtu = self.mtu;
        // A packet of one segment is not cut.
        let joined = if self.gso_max_segs > 1 { self.gso_max_size } else { 0 };
        Ok(Device {
            name: self.ifname,
            ifindex: self.ifindex,
            netns,
            ethernet,
            queues: self.num_tx_queues,
            mtu: Bytes::new(mtu.into()),
            largest: Bytes::new(mtu.max(joined).into()),
            ifb: self.linkinfo.info_kind == "ifb",
        })
    }
}

/// Fields of a device that `ip` prints and this reads.
#[derive(serde::Deserialize)]
struct Link {
    ifindex: u32,
    ifname: String,
    link_type: String,
    #[serde(default = "one")]
    num_tx_queues: u32,
    #[serde(default = "ethernet_mtu")]
    mtu: u32,
    // Defaults of Linux, for an iproute2 that does not print them.
    #[serde(default = "gso_max_size")]
    gso_max_size: u32,
    #[serde(default = "gso_max_segs")]
    gso_max_segs: u32,
    #[serde(default)]
    linkinfo: LinkInfo,
}

/// Kind of a virtual device, as `ip` prints it.
#[derive(Default, serde::Deserialize)]
struct LinkInfo {
    #[serde(default)]
    info_kind: String,
}

const fn one() -> u32 {
    1
}

const fn ethernet_mtu() -> u32 {
    1500
}

const fn gso_max_size() -> u32 {
    65_536
}

const fn gso_max_segs() -> u32 {
    65_535
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_from_the_output_of_ip() {
        let device = |json: &[u8]| {
            let links = read("lo", json)?;
            links.into_iter().next().ok_or(DeviceError::Unreadable { name: "lo".to_owned() })?.device(9)
        };
        let json = br#"[{"ifindex":7,"ifname":"wan","flags":["UP"],"mtu":1500,"link_type":"ether","num_tx_queues":4}]"#;
        let expected = Device {
            name: "wan".to_owned(),
            ifindex: 7,
            netns: 9,
            ethernet: true,
            queues: 4,
            mtu: Bytes::new(1500),
            largest: Bytes::new(65_536),
            ifb: false,
        };
        assert_eq!(device(json).ok(), Some(expected));
        for (said, largest) in [
            (r#""gso_max_size":16384"#, 16_384),
            (r#""gso_max_size":185000,"gso_max_segs":40"#, 185_000),
            (r#""gso_max_size":65536,"gso_max_segs":1"#, 9000),
        ] {
            let json = format!(r#"[{{"ifindex":7,"ifname":"wan","mtu":9000,"link_type":"ether",{said}}}]"#);
            let device = device(json.as_bytes()).unwrap();
            assert_eq!((device.mtu, device.largest), (Bytes::new(9000), Bytes::new(largest)), "{said}");
        }
        let ppp = br#"[{"ifindex":8,"ifname":"ppp0","link_type":"ppp"}]"#;
        let ppp = device(ppp).unwrap();
        assert!(!ppp.ethernet && ppp.queues == 1);
        let ifb = br#"[{"ifindex":4,"ifname":"ifb0","link_type":"ether","linkinfo":{"info_kind":"ifb"}}]"#;
        assert!(device(ifb).unwrap().ifb);
        for (json, said) in [
            (&br#"[{"ifindex":1,"ifname":"lo","link_type":"loopback"}]"#[..], "loopback"),
            (b"[]", "cannot be read"),
            (b"?", "cannot be read"),
        ] {
            let error = device(json).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
    #[test]
    fn a_redirection_is_found_by_the_name_of_its_device() {
        let filters =
            r#"[{"kind":"u32","actions":[{"kind":"mirred","direction":"egress","to_dev": "ifb9"}]}]"#;
        assert!(is_redirect_to(filters, "ifb9"));
        assert!(!is_redirect_to(filters, "ifb") && !is_redirect_to("", "ifb9"));
    }
}
