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
        for (json, said) in [
            (&br#"[{"ifindex":1,"ifname":"lo","link_type":"loopback"}]"#[..], "loopback"),
            (b"[]", "cannot be read"),
            (b"?", "cannot be read"),
        ] {
            let error = device(json).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
